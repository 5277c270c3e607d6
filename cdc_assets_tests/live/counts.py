"""What the runs of one command counted: a run ends where the reader of the binlog fails by its own fault."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from cdc_assets_tests.live.types import OF_NAME

_ENOUGH = {"production": 20, "type": 100}


@dataclass
class Counts:
    """The counts of all runs.

    Attributes:
        productions: rule of the grammar -> how often it was carried out.
        refused: rule of the grammar -> how often the server refused it.
        types: type -> the statements that changed a column of it.
        reported: text of a failing check -> how often it failed.
        sums: steps, statements, restarts and so on.
    """

    productions: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    reported: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)

    def show(self, rules: Collection[str]) -> bool:
        """Print the counts; return whether a rule of the grammar or a type is rare."""
        least = min((self.productions[rule], rule) for rule in rules)
        rare_types = min((self.types[name], name) for name in OF_NAME)
        for rule in sorted(rules, key=lambda rule: self.productions[rule]):
            print(f"{self.productions[rule]:>6} ({self.refused[rule]} refused) {rule[:100]}")
        print(
            "types: " + ", ".join(f"{name} {self.types[name]}" for name in sorted(OF_NAME, key=lambda n: self.types[n]))
        )
        for text, count in self.reported.most_common():
            print(f"reported {count} times: {text}")
        is_rare = least[0] < _ENOUGH["production"] or rare_types[0] < _ENOUGH["type"]
        if is_rare:
            print("too short for every production 20 times and every type 100 times")
        print(
            f"{', '.join(f'{count} {name}' for name, count in self.sums.items())}; {len(rules)} productions, each at least "
            f"{least[0]} times ({least[1][:40]}), each type in at least {rare_types[0]} statements ({rare_types[1]})"
        )
        return is_rare
