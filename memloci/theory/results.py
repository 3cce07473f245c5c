"""Every result, of the paper and of memloci: what it states, what it assumes, where it is proved, what shows it.

`about(task)` is what a result says of one task, or None where it is not about it. To add a result, add a row; the test checks
that its file is there and that its command is one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from memloci.tasks.task import Task
from memloci.theory import about_tasks

PAPER, OURS = "paper", "memloci"


def _nothing(task: Task) -> str | None:
    return None


@dataclass(frozen=True)
class Result:
    name: str
    by: str
    states: str
    assumes: str
    proved: str  # where
    command: str  # that shows it
    about: Callable[[Task], str | None] = _nothing

    def to_dict(self) -> dict[str, str]:
        return {
            name: getattr(self, name) for name in ("name", "by", "states", "assumes", "proved", "command")
        }


_EVERY_N = "exact arithmetic, coefficients of any size, heads that see the present, inputs over all of Z"

PAPERS = (
    Result(
        "Theorem 3.1",
        PAPER,
        "M fixed lags, one layer of dpf heads: E <= E_FFN + Lip(f) E_Attn with E_Attn <= C(n) H^-n (sum e^{0.01 T_i})^{n+1} for lin heads and "
        "C(n) H^-n (sum T_i^{1.01})^{n+1} for log heads, for every n; E_FFN = O~(||f||_B / sqrt(m)).",
        f"softmax over the infinite past; {_EVERY_N}",
        "paper, section 3; with a constant C(n): Lemma F.1 below",
        "memloci rates delay --vary heads --no-train",
    ),
    Result(
        "Lemma F.1",
        PAPER,
        "Heads with exponents 0.01 (k + 1), shared out among the memories, recall a lag with the error of Theorem 3.1. Ours: its constant, "
        "C(n) = S (pi / 4)^n 4^{n-1} (n-1)! / w^n with S and w explicit.",
        "exact arithmetic, coefficients of any size; H > n",
        "paper, appendix F; the constant: docs/theory.md section 0, theory/lemma_f1.py",
        "memloci rates delay --vary heads --no-train",
        about_tasks.lemma_f1,
    ),
    Result(
        "Theorem 4.1",
        PAPER,
        "Lags that read the present (K = 0), two layers of dp: the attention error of Theorem 3.1.",
        "no normalisation, neurons rounded to whole numbers or their logarithms; m >= O~(sum ||g_i||_B^2) for lin heads, "
        "O~(sum ||log g_i||_B^2 T_i^2) for log heads",
        "paper, section 4; compiled and certified: routes/sums.py",
        "memloci plan look-back --route lin-dp --route log-dp",
    ),
    Result(
        "Proposition 4.2",
        PAPER,
        "On x_{t-g(x_t)}, g = 0, 1, 2 on {-1, 0, 1}, one layer of attention without neurons reaches any error with dp, and errs by 2/3 or more "
        "without, for any H. Ours: by 1 or more, which is sharp (affine floor below).",
        "no neurons; H is any number",
        "paper, section 4 and Proposition C.4",
        "memloci plan look-back --depth-table --precision float64",
    ),
    Result(
        "Theorem 4.3",
        PAPER,
        "As Theorem 4.1 with tmx in place of dp: O(D) parameters in place of O(D^2).",
        "as Theorem 4.1",
        "paper, section 4 and Proposition C.6; compiled and certified: routes/sums.py",
        "memloci plan look-back --route lin-tmx --route log-tmx",
    ),
    Result(
        "Theorem 4.4",
        PAPER,
        "K nested lags among M memories, L = K + 1 + 1{M >= K + 1} layers of dp: E_Attn <= C(n) H^-n sqrt(sum_{l<=K} e^{0.02 (n+1) T_l} + "
        "(sum_{l>K} e^{0.01 T_l})^{2n+2}) for lin heads, with T_l^{2.02 (n+1)} and T_l^{1.01} for log heads.",
        "as Theorem 4.1, with m at least the largest over nested memories and the sum over the rest",
        "paper, section 4; compiled and certified: routes/rotary.py, routes/sums.py",
        "memloci plan nested-2",
    ),
    Result(
        "Proposition 4.5",
        PAPER,
        "Lags that read the present, M + 1 layers, one memory each: C(n) H^-n sqrt(sum e^{0.02 (n+1) T_l}), and m need only be the largest "
        "||g_i||_B^2 in place of their sum: depth buys width and heads.",
        "as Theorem 4.1",
        "paper, section 4; compiled and certified: routes/sums.py, tradeoffs/depth_table.py",
        "memloci plan partly-nested --depth-table",
    ),
    Result(
        "Theorem 5.1 A",
        PAPER,
        "Kernels O(e^{-beta t}), one layer of dpf lin heads: C(n) M^{n+1} H^-n for n <= floor(99 beta).",
        "softmax over the infinite past",
        "paper, section 5",
        "memloci rates exponential --vary heads --no-train",
    ),
    Result(
        "Theorem 5.1 B",
        PAPER,
        "Kernels O(t^{-beta}), one layer of dpf log heads: C(n) M^{n+1} H^-n for n <= floor(0.99 beta) - 1, so no rate at all below beta = 2.03.",
        "softmax over the infinite past; beta > 1",
        "paper, section 5",
        "memloci rates heavy-tail --vary heads --encoding log --no-train",
    ),
)

OURS_ALL = (
    Result(
        "Exact certificate",
        OURS,
        "With dpf heads and a linear readout the largest error is the l1 norm of the residual kernel: the worst input is its sign.",
        "fixed kernels; sequences of any length",
        "docs/theory.md section 2; approx/kernels/residuals.py",
        "memloci compile delay --route one-layer-lin --precision float64 --tolerance 0.5 --out out/delay",
        about_tasks.exact_certificate,
    ),
    Result(
        "Precision wall",
        OURS,
        "Lin heads that recall lag t to within eps have mass at least |y_{t-1}| - eps max |y_j| for every polynomial bounded by 1 on [0, 1]: about 4 "
        "bits per lag, whatever H is. Rounding costs one unit of it at least, so float32 stops near lag 5, float64 near lag 12.",
        "one layer of lin heads; for any heads and kernels by linear programming (approx/kernels/lower_bounds.py)",
        "docs/theory.md section 2; approx/kernels/lower_bounds.py",
        "memloci plan delay --route one-layer-lin",
        about_tasks.precision_wall,
    ),
    Result(
        "Depth breaks the wall",
        OURS,
        "A shift by one lag is exact with one head, and lag t is a chain of t of them: depth trades against heads and bits.",
        "dpf lin heads",
        "docs/theory.md section 2; routes/depth.py",
        "memloci plan delay-far --depth-table",
        about_tasks.chain_of_shifts,
    ),
    Result(
        "Rotary heads break the wall",
        OURS,
        "A rotary head whose logit is c sum_j cos(pi 2^-j (z - t)) recalls any lag: every other lag loses at least 2 c of the logit.",
        "a window, or softmax with a sink at position 0",
        "docs/theory.md sections 2 and 3; routes/rotary.py, certify/pointers.py",
        "memloci plan pointer-far",
        about_tasks.rotary,
    ),
    Result(
        "Affine floor",
        OURS,
        "If two present tokens ask for two numbers of the past, each in a range of length 2 r, every affine function of the past errs by r or more. It "
        "sharpens Proposition 4.2 from 2/3 to 1, and is not comparable with the capacity bound.",
        "no dot product, no neurons, no norm; any heads, layers, encoding and normalisation, symbols or real numbers",
        "docs/theory.md section 3; routes/affine_floor.py",
        "memloci train look-back --attention dpf --width 0 --steps 200",
        about_tasks.affine_past,
    ),
    Result(
        "Capacity bound",
        OURS,
        "If L H d_v < N, where N counts the real numbers of the past that a query can ask for, the error is at least half their range. Chains of "
        "shifts attain it. It is not comparable with Proposition 4.2.",
        "weights that factorise (dpf, tmx) or any recurrent state of that size; any neurons, any norm; real numbers",
        "docs/theory.md section 3; routes/capacity.py",
        "memloci study 6a --quick",
        about_tasks.capacity_bound,
    ),
    Result(
        "Matches",
        OURS,
        "The latest past token whose key satisfies a predicate of the present is recalled by one head, up to a stated length, in any precision.",
        "softmax with lin encoding; logits are whole numbers of the precision",
        "certify/match_heads.py",
        "memloci plan mqar",
        about_tasks.matches,
    ),
    Result(
        "Barron norms",
        OURS,
        "The Barron norms of readouts and lag functions from above, by the networks that are compiled for them: sum |a| (||b||_1 + |c|).",
        "what is within E of the function, where the network is not exact",
        "theory/barron.py",
        "memloci theory nested-1",
    ),
)

RESULTS = (*PAPERS, *OURS_ALL)
