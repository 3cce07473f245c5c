"""The verdicts that the README shows: of every claim in the largest profile that it was studied in."""

from dataclasses import dataclass
from pathlib import Path

from memloci.core.files import parse_json, read_bytes

MOST_BYTES = 2**24
# As installed, then as in a checkout.
PLACES = (Path(__file__).with_name("verdicts.json"), Path(__file__).parents[2] / "docs" / "verdicts.json")


@dataclass(frozen=True)
class Published:
    verdict: str
    profile: str
    seeds: int
    summary: str


def published() -> dict[str, Published]:
    """By the id of the claim; empty where the file is not there."""
    file = next((place for place in PLACES if place.is_file()), None)
    records = parse_json(read_bytes(file, MOST_BYTES)) if file is not None else []
    verdicts: dict[str, Published] = {}
    for record in sorted(records, key=lambda record: record["profile"] == "full"):
        names = ("verdict", "profile", "seeds", "summary")
        verdicts[record["id"]] = Published(**{name: record[name] for name in names})
    return verdicts
