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


def tasks(folder: Path, n: int, seed: int, routes: str) -> None:
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
    asked = routes.split(",") if routes else list(SERVES)
    while sum("text" in case for case in cases) < n:
        route = asked[int(rng.integers(len(asked)))]
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
    if not all("kernel" in memory for memory in memories):
        return None
    return toml({"kind": "essential", "kernels": [_kernel(**memory) for memory in memories], **data})


def _kernel(kernel: str, horizon: int | None = None) -> str:
    return kernel if horizon is None else f"where(z <= {horizon}, {kernel}, 0)"


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
                result = {"bounds": _bounds(built.certificate)}
            except Exception as error:
                result = {"refused": f"{type(error).__name__}: {error}"[:300]}
            finally:
                signal.alarm(0)
            seconds = round(time.process_time() - began, 2)
            results.write(json.dumps({"name": case["name"], "seconds": seconds, **result}) + "\n")
            results.flush()


def _bounds(certificate: Any) -> dict[str, float]:
    """Every proved number of a certificate: in its own precision, in exact arithmetic, and in each other precision."""
    others = {name: float(bound) for name, bound in certificate.bound_by_precision.items()}
    return {"bound": float(certificate.bound), "exact": float(certificate.exact_bound), **others}


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
        same_weights: dict[str, float] = {}
        if "bounds" in a:
            signal.alarm(LIMIT)
            try:
                (model, _), task = ml.load(old / "models" / name), _task(ml, case, new)
                same_weights = _bounds(ml.certify(model, task, tolerance=case["tolerance"]))
            except Exception as error:
                print(f"{name}: the older model: {type(error).__name__}: {error}")
            finally:
                signal.alarm(0)
        text = _said(a, b, same_weights)
        moved.setdefault(_verdict(a, b, same_weights), []).append(
            f"{name} ({case.get('route', 'best')}): {text}"
        )
    for verdict, lines in sorted(moved.items()):
        print(f"\n{verdict}: {len(lines)}")
        if not verdict.startswith("equal"):
            print("\n".join(f"  {line}" for line in lines))


def _verdict(a: dict[str, Any], b: dict[str, Any], same_weights: dict[str, float]) -> str:
    if "bounds" not in a:
        return "refused before and now" if "bounds" not in b else "refused before, served now"
    if "bounds" not in b:
        return "served before, refused now"
    same = _moved(a["bounds"], same_weights) if same_weights else "not certified"
    return f"{_moved(a['bounds'], b['bounds'])} (the older weights: {same})"


def _moved(a: dict[str, float], b: dict[str, float]) -> str:
    """Looser where any number is; only what both versions state is compared."""
    pairs = [(a[name], b[name]) for name in a if name in b]
    if any(y > x * SAME for x, y in pairs):
        return "looser"
    return "tighter" if any(y * SAME < x for x, y in pairs) else "equal"


def _results(out: Path) -> dict[str, dict[str, Any]]:
    lines = (out / "results.jsonl").read_text().splitlines()
    return {result["name"]: result for result in map(json.loads, lines)}


def _said(a: dict[str, Any], b: dict[str, Any], same_weights: dict[str, float]) -> str:
    """The numbers that moved, each as before -> now, and now for the older weights."""
    if "bounds" not in a or "bounds" not in b:
        return " -> ".join(f"{r['bounds']['bound']:.4g}" if "bounds" in r else r["refused"] for r in (a, b))
    old, new = a["bounds"], b["bounds"]
    parts = []
    for name in old:
        if name in new and _moved({name: old[name]}, {name: new[name]}) != "equal":
            again = f", {same_weights[name]:.4g} for the older weights" if name in same_weights else ""
            parts.append(f"{name} {old[name]:.4g} -> {new[name]:.4g}{again}")
    return "; ".join(parts) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    some = commands.add_parser("tasks")
    some.add_argument("folder", type=Path)
    some.add_argument("--n", type=int, default=200)
    some.add_argument("--seed", type=int, default=0)
    some.add_argument(
        "--routes", default="", help="only these, separated by commas: an older version lacks some"
    )
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
