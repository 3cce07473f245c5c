"""Random expressions, as a user would type them, and random boxes for their variables."""

from hypothesis import strategies as st

from memloci.core.intervals import Interval

NAMES = ("x", "y")
NUMBERS = ("0", "1", "2", "3", "0.5", "0.1", "7.25", "1e-3", "pi", "100")
UNARY = ("-({})", "abs({})", "exp({})", "log({})", "sin({})", "cos({})", "tanh({})", "sqrt({})")
STEPS = ("round({})", "floor({})", "sign({})", "(not ({}))")
BINARY = ("({}) + ({})", "({}) - ({})", "({}) * ({})", "({}) / ({})", "({}) ** ({})")
CHOICES = ("min({}, {})", "max({}, {})", "({}) % ({})", "({}) // ({})")
TRUTHS = ("(({}) < ({}))", "(({}) <= ({}))", "(({}) > ({}))", "(({}) == ({}))", "(({}) != ({}))")
LOGIC = ("(({}) and ({}))", "(({}) or ({}))")
INTEGER_POWERS = ("({}) ** 2", "({}) ** 3", "({}) ** -1", "({}) ** -2", "({}) ** 0", "({}) ** 0.5")
TERNARY = ("where({}, {}, {})",)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def filled(forms: tuple[str, ...], holes: int) -> st.SearchStrategy[str]:
        return st.builds(
            lambda form, parts: form.format(*parts), st.sampled_from(forms), st.tuples(*[inner] * holes)
        )

    return st.one_of(
        filled(UNARY + STEPS + INTEGER_POWERS, 1),
        filled(BINARY + CHOICES, 2),
        filled(TRUTHS + LOGIC, 2),
        filled(TERNARY, 3),
    )


expression_texts = st.recursive(st.sampled_from(NAMES + NAMES + NUMBERS), _grow, max_leaves=8)

numbers = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-300, -1e-9, 1e6]),
    st.floats(-4, 4, allow_subnormal=False),
    st.floats(-1e3, 1e3, allow_subnormal=False),
)


@st.composite
def boxes_with_points(draw: st.DrawFn) -> tuple[dict[str, Interval], dict[str, float], dict[str, float]]:
    """A box and two points in it."""
    box, first, second = {}, {}, {}
    for name in NAMES:
        lo, hi = sorted((draw(numbers) + 0.0, draw(numbers) + 0.0))  # no minus zero
        box[name] = Interval(lo, hi)
        first[name], second[name] = draw(st.floats(lo, hi)), draw(st.floats(lo, hi))
    return box, first, second
