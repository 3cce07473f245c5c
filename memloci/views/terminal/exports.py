"""What was seen of an export, and what is proved of it."""

from rich.console import Group
from rich.table import Table

from memloci.core.numbers import number
from memloci.exchange.formats import Export


def export_table(done: Export) -> Group:
    proved = done.proved
    table = Table("length", "sequences", "from ours", "from the target", "bound", title=proved.runtime)
    for each in done.observed:
        off = "" if each.err_from_target is None else number(each.err_from_target)
        limit = each.limit_from_ours if each.limit_from_target is None else each.limit_from_target
        table.add_row(str(each.length), str(each.sequences), number(each.err_from_ours), off, number(limit))
    lines = [f"proved: {line}" for line in proved.conditions_met]
    lines += [f"measured only: {line}" for line in proved.measured_only]
    lines += [f"not held: {line}" for line in proved.conditions_missed]
    return Group(table, *lines)
