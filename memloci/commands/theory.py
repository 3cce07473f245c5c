"""`memloci theory`: every result, or what the results say of one task."""

from memloci.commands.shared import Json, TaskName, print_json, print_view

EXAMPLE = "memloci theory nested-1"


def theory(task: TaskName = None, as_json: Json = False) -> None:
    """List every result with its assumptions, its proof and the command that shows it, or say what they mean for one task."""
    from memloci.views.terminal import theory as views

    if task is None:
        from memloci.theory.results import RESULTS

        if as_json:
            print_json([result.to_dict() for result in RESULTS])
        else:
            print_view(views.results_view(RESULTS))
        return
    from memloci.study.published import published
    from memloci.tasks.load import load_task
    from memloci.theory.of_task import theory_of

    of_task, verdicts = theory_of(load_task(task), task), published()
    if as_json:
        print_json(views.theory_dict(of_task, verdicts))
    else:
        print_view(views.theory_view(of_task, verdicts))
