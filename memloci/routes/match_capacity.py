"""What matches ask of a state: one real number per key and channel.

    past: one token for each of N keys, payloads in boxes     =>     a state of n < N d numbers fails (capacity.py)

The past has one token per key, so each query finds exactly one of them, whether it takes the latest, the earliest or the
mean; with an offset o, the o tokens that follow the last key are passed over, because what comes o steps later is not past.
The payloads of all keys then run over a box, and every one of them can be asked for: the antipodal argument holds as it does
for lags, N d numbers suffice (one slot per key and channel), and so the bound is sharp.

Counted: conditions that compare channels for equality give one key per combination of their letters; a condition
without an equality gives one. Matches that read other memories are not counted, so N is never too large.
"""

import itertools
from collections.abc import Iterator

from memloci.core.intervals import Interval
from memloci.language.expression import Variable
from memloci.routes.questions import Question, Questions, middle_of
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.memories.predicate import Predicate
from memloci.tasks.names import channel_of, memory_of
from memloci.tasks.task import Task

MOST_KEYS = 1 << 14  # combinations of letters that are looked at; fewer only weaken the bound
MOST_TRIES = 64  # symbols of the query that no equality fixes, per key

Pieces = dict[str, int]


def match_questions(task: Task) -> Questions:
    """What can be asked of the match for which that is most."""
    box = tuple(max(channel.domain, key=lambda piece: piece.width) for channel in task.channels)
    exams = [Questions(box, ())]
    for i, recall in enumerate(task.recalls, start=1):
        if isinstance(recall, Occurrence) and not recall.parents:
            exams.append(_questions(task, i, recall, box))
    return max(exams, key=lambda exam: len(exam.all))


def _questions(task: Task, i: int, recall: Occurrence, box: tuple[Interval, ...]) -> Questions:
    names, o = task.channel_names, recall.offset
    compared = {channel_of(name) for name in recall.predicate.keys}
    returned: dict[int, int] = {}  # channel -> output
    for output, formula in enumerate(task.readouts):
        if isinstance(formula.expression, Variable) and memory_of(formula.expression.name) == i:
            name = channel_of(formula.expression.name)
            c = names.index(name)
            if not box[c].is_point and name not in compared:
                returned.setdefault(c, output)
    if not returned:
        return Questions(box, ())
    questions = []
    for lag, (mine, theirs) in enumerate(pairs(recall.predicate), start=1):
        token, query = (_token(task, box, recall.predicate, pieces) for pieces in (mine, theirs))
        for c, output in returned.items():
            questions.append(Question(output, c, lag, lag + o, query, box[c].width / 2, (lag + o, token)))
    questions.sort(key=lambda question: (-question.r, question.lag, question.channel))
    return Questions(box, tuple(questions), older=recall.which == "latest")


def pairs(P: Predicate) -> Iterator[tuple[Pieces, Pieces]]:
    """(symbols of a candidate, of a query that finds it), one pair per key: no query finds the candidate of another."""
    keys, domains, yielded = P.keys, P.domains, set()
    for combination in itertools.islice(
        itertools.product(*(range(len(domains[v])) for v in keys)), MOST_KEYS
    ):
        mine = dict(zip(keys, combination, strict=True))
        letters = tuple(mine[e.candidate] for e in P.equalities)
        if letters in yielded:
            continue
        for theirs in itertools.islice(_queries(P, mine), MOST_TRIES):
            if bool(P.table[P.column(theirs, False), P.column(mine, True)]):
                yielded.add(letters)
                yield mine, theirs
                break


def _queries(P: Predicate, mine: Pieces) -> Iterator[Pieces]:
    """The symbols of queries whose compared letters are those of the candidate."""
    fixed: Pieces = {}
    for e in P.equalities:
        equal = [b for b, a in enumerate(e.same) if a == mine[e.candidate]]
        if not equal or fixed.setdefault(e.query, equal[0]) != equal[0]:
            return
    free = [v for v in P.reads if v not in fixed]
    for combination in itertools.product(*(range(len(P.domains[v])) for v in free)):
        yield fixed | dict(zip(free, combination, strict=True))


def _token(task: Task, box: tuple[Interval, ...], P: Predicate, pieces: Pieces) -> tuple[float, ...]:
    token = [middle_of(piece) for piece in box]
    for name, k in pieces.items():
        token[task.channel_names.index(channel_of(name))] = middle_of(P.domains[name][k])
    return tuple(token)
