"""The certificates of two versions of memloci, compared: no bound may become looser.

    python -m benchmarks.certificates tasks DIR --n 200 --seed 0    the gallery and n random tasks, as files
    python benchmarks/certificates.py run DIR OUT                   compile and certify each, by the memloci that is imported
    python -m benchmarks.certificates compare DIR OLD NEW           what moved

`run` uses only names that every version has, so that an older checkout runs it too: `PYTHONPATH=OLD python benchmarks/certificates.py
run DIR OUT`. It saves the models. `compare` certifies the older models once more with this version: a bound that moved for the
same weights was moved by the certifier, any other by the planner or the compiler.
"""

import argparse
import json
import signal
import time
from pathlib import Path
from typing import Any

LIMIT = 120  # seconds for one case
SAME = 1.001  # bounds closer than this are called equal


def tasks(folder: Path, n: int, seed: int) -> None:
    import numpy as np

    import memloci as ml
    from tests.audit.random_tasks import SERVES, random_task

    cases = []
    for name in ml.GALLERY:
        for precision in ("float32", "float64"):
            cases.append(
                {"name": f"{name}-{precision}", "gallery": name, "precision": precision, "tolerance": 1e-3}
            )
    rng = np.random.default_rng(seed)
    routes = list(SERVES)
    while sum("text" in case for case in cases) < n:
        route = routes[int(rng.integers(len(routes)))]
        request = random_task(rng, route)
        if text := _short(request.text):
            case = {
                "text": text,
                "route": route,
                "precision": request.precision,
                "tolerance": request.tolerance,
            }
            cases.append({"name": f"random-{len(cases)}", **case})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.json").write_text(json.dumps(cases, indent=1))
    print(f"{len(cases)} cases in {folder}")


def _short(text: str) -> str | None:
    """The task in the form that the first version could read, if it can be written so."""
    import tomllib

    from tests.audit.random_tasks import toml

    data: dict[str, Any] = tomllib.loads(text)
    if "memories" not in data:
        return text
    memories = data.pop("memories")
    if any(set(memory) != {"kernel"} for memory in memories):
        return None
    return toml({"kind": "essential", "kernels": [memory["kernel"] for memory in memories], **data})


def run(folder: Path, out: Path) -> None:
    import memloci as ml

    signal.signal(signal.SIGALRM, _too_long)
    (out / "models").mkdir(parents=True, exist_ok=True)
    with (out / "results.jsonl").open("w") as results:
        for case in json.loads((folder / "cases.json").read_text()):
            began = time.process_time()
            signal.alarm(LIMIT)
            try:
                task = _task(ml, case, out)
                built = ml.compile(
                    task, tolerance=case["tolerance"], precision=case["precision"], route=case.get("route")
                )
                ml.write(built, out / "models" / case["name"])
                result = {
                    "bound": float(built.certificate.bound),
                    "exact": float(built.certificate.exact_bound),
                }
            except Exception as error:
                result = {"refused": f"{type(error).__name__}: {error}"[:300]}
            finally:
                signal.alarm(0)
            seconds = round(time.process_time() - began, 2)
            results.write(json.dumps({"name": case["name"], "seconds": seconds, **result}) + "\n")
            results.flush()


def _task(ml: Any, case: dict[str, Any], out: Path) -> Any:
    if "gallery" in case:
        return ml.GALLERY[case["gallery"]]()
    path = out / "task.toml"
    path.write_text(case["text"])
    return ml.load_task(path)


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"over {LIMIT} s")


def compare(folder: Path, old: Path, new: Path) -> None:
    import memloci as ml

    signal.signal(signal.SIGALRM, _too_long)
    before, after = (_results(out) for out in (old, new))
    moved: dict[str, list[str]] = {}
    for case in json.loads((folder / "cases.json").read_text()):
        name = case["name"]
        a, b = before.get(name), after.get(name)
        if a is None or b is None:
            continue
        again = None
        if "bound" in a:
            signal.alarm(LIMIT)
            try:
                (model, _), task = ml.load(old / "models" / name), _task(ml, case, new)
                again = float(ml.certify(model, task, tolerance=case["tolerance"]).bound)
            except Exception as error:
                print(f"{name}: the older model: {type(error).__name__}: {error}")
            finally:
                signal.alarm(0)
        moved.setdefault(_verdict(a, b, again), []).append(
            f"{name} ({case.get('route', 'best')}): {_said(a)} -> {_said(b)}, the older model {_bound(again)}"
        )
    for verdict, lines in sorted(moved.items()):
        print(f"\n{verdict}: {len(lines)}")
        if not verdict.startswith("equal"):
            print("\n".join(f"  {line}" for line in lines))


def _verdict(a: dict[str, Any], b: dict[str, Any], again: float | None) -> str:
    if "bound" not in a:
        return "refused before and now" if "bound" not in b else "refused before, served now"
    if "bound" not in b:
        return "served before, refused now"
    same = "no model" if again is None else _moved(a["bound"], again)
    return f"{_moved(a['bound'], b['bound'])} (the older weights: {same})"


def _moved(a: float, b: float) -> str:
    return "tighter" if b * SAME < a else "looser" if b > a * SAME else "equal"


def _results(out: Path) -> dict[str, dict[str, Any]]:
    lines = (out / "results.jsonl").read_text().splitlines()
    return {result["name"]: result for result in map(json.loads, lines)}


def _said(result: dict[str, Any]) -> str:
    return _bound(result["bound"]) if "bound" in result else result["refused"]


def _bound(bound: float | None) -> str:
    return "-" if bound is None else f"{bound:.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    some = commands.add_parser("tasks")
    some.add_argument("folder", type=Path)
    some.add_argument("--n", type=int, default=200)
    some.add_argument("--seed", type=int, default=0)
    each = commands.add_parser("run")
    each.add_argument("folder", type=Path)
    each.add_argument("out", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("folder", type=Path)
    both.add_argument("old", type=Path)
    both.add_argument("new", type=Path)
    given = vars(parser.parse_args())
    {"tasks": tasks, "run": run, "compare": compare}[given.pop("command")](**given)


if __name__ == "__main__":
    main()
