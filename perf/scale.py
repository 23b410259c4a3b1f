"""Past one machine, on paper: the queue, the workers, the store and the model's limits at 1,000 to 10 million users.

    users ── asks ──────────────┐                                   ┌── answers at once, or a refusal
      └──── sessions ── queue ──┴─ workers ── calls ── endpoint ────┴── memories, as soon as there is room

Four days are simulated minute by minute: arrivals by the hour of the day (Poisson, seeded), questions before sessions,
as many calls as workers, calls in flight and the endpoint's limits of requests and tokens let through. On the third day
the endpoint is gone for an hour in the evening, on the fourth a quarter of the workers for ten minutes; one call in a
hundred is repeated throughout. Unit costs (`COSTS`) are those that `--measure` printed; how much users say and what an
endpoint or a database can take is assumed (`LOAD`, `LIMITS`).

`page` is docs/scale.md, every number of it computed here; a test compares them.

Usage:
    $ python perf/scale.py              # prints the page
    $ python perf/scale.py --measure    # unit costs of this machine
    $ python perf/scale.py --write      # writes the page
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
DAY, HOUR = 24 * 60, 60
DAYS = 4
OUTAGE, LOSS = (2 * DAY + 20 * HOUR, HOUR), (3 * DAY + 20 * HOUR, 10)
"""First minute and minutes: without the endpoint, and without a quarter of the workers."""
HEADROOM = 1.3
"""What is there, by what the busiest hour needs."""
SCALES = (1_000, 100_000, 10_000_000)


@dataclass(frozen=True)
class Costs:
    """What one thing takes: memory-r2 on sessions of ten turns, and the HTTP service."""

    add_ms: float
    """CPU of the service for a session that is stored, queued, and, with turn RAG, remembered."""
    ask_ms: float
    """CPU of the service for a question, without the model."""
    write_ms: float
    """CPU of a worker for a session that is written into a memory, without the model."""
    write_calls: float
    """Calls a session takes."""
    write_in: float
    """Prompt tokens of a session, all its calls together."""
    write_out: float
    ask_in: float
    ask_out: float
    session_kb: float
    """What a session leaves in the store: its turns, their ids, its share of the memory."""


@dataclass(frozen=True)
class Load:
    """What users do (assumed)."""

    sessions: float = 0.5
    """A user and day."""
    asks: float = 1.5
    swing: float = 0.8
    """By how much the busiest hour (20) is above the mean, and the quietest (8) below."""
    repeated: float = 0.01
    """Share of calls that fail and are made again."""


@dataclass(frozen=True)
class Limits:
    """What one of each can take (assumed)."""

    latency: float = 1.5
    """Seconds of a call."""
    slots: int = 128
    """Calls in flight of one endpoint: the product's default."""
    requests: float = 10_000
    """A minute and quota of the provider."""
    tokens: float = 10_000_000
    cores: int = 8
    """Worker processes of one machine, one a core."""
    commits: float = 2_000
    """A second and PostgreSQL primary."""
    gigabytes: float = 500
    """A partition."""
    usd_in: float = 0.40
    """A million prompt tokens."""
    usd_out: float = 1.60


COSTS = Costs(5.2, 3.4, 15.5, 8.0, 11_600, 330, 2_050, 27, 10.5)
LOAD, LIMITS = Load(), Limits()
COMMITS = {"add": 1, "write": 3, "ask": 0}
"""Transactions: a session is stored; claimed, written, released; a question only reads."""


@dataclass(frozen=True)
class Need:
    """What the busiest hour needs, per second or minute."""

    asks: float
    sessions: float
    cores: float
    calls: float
    """A second."""
    flight: float
    tokens: float
    """A minute."""
    commits: float


@dataclass(frozen=True)
class Size:
    """What is set up."""

    cores: int
    flight: int
    quotas: int
    """Of the provider's limits."""
    primaries: int
    partitions: int


@dataclass(frozen=True)
class Ran:
    """What became of the simulated days: minutes, and shares."""

    usual: float
    """Minutes until the slowest session in a hundred is in its memory, on days without failures."""
    outage: float
    """The longest, after the endpoint was gone."""
    drained: float
    """Minutes until the queue is as short as before."""
    queued: int
    """Sessions in the queue when the endpoint came back."""
    refused: int
    """Questions that got no answer while it was gone."""
    loss: float
    """The longest, after workers were gone."""


def shape(load: Load) -> np.ndarray:
    """The weight of every minute of a day; their mean is 1."""
    hours = np.arange(DAY) / HOUR
    return 1 + load.swing * np.cos(2 * np.pi * (hours - 20) / 24)


def need(users: float, costs: Costs = COSTS, load: Load = LOAD, limits: Limits = LIMITS) -> Need:
    """What the busiest hour needs."""
    busy, again = float(shape(load).max()) / 86_400, 1 + load.repeated
    asks, sessions = users * load.asks * busy, users * load.sessions * busy
    calls = (asks + sessions * costs.write_calls) * again
    tokens = asks * (costs.ask_in + costs.ask_out) + sessions * (costs.write_in + costs.write_out)
    cores = (asks * costs.ask_ms + sessions * (costs.add_ms + costs.write_ms)) / 1000
    commits = sessions * (COMMITS["add"] + COMMITS["write"]) + asks * COMMITS["ask"]
    return Need(asks, sessions, cores, calls, calls * limits.latency, tokens * again * 60, commits)


def size(users: int, limits: Limits = LIMITS) -> Size:
    """What is set up for so many users."""
    busy = need(users, limits=limits)
    quotas = max(busy.calls * 60 / limits.requests, busy.tokens / limits.tokens)
    held = 3 * 365 * stored(users)
    return Size(
        math.ceil(busy.cores * HEADROOM) + 1,
        max(8, math.ceil(busy.flight * HEADROOM)),
        math.ceil(quotas * HEADROOM),
        math.ceil(busy.commits * HEADROOM / limits.commits),
        math.ceil(held / limits.gigabytes),
    )


def stored(users: float, costs: Costs = COSTS, load: Load = LOAD) -> float:
    """Gigabytes a day."""
    return users * load.sessions * costs.session_kb / 1e6


def dollars(users: float, costs: Costs = COSTS, load: Load = LOAD, limits: Limits = LIMITS) -> tuple[float, float]:
    """US dollars a day for questions and for memories."""
    again = (1 + load.repeated) / 1e6
    asks = load.asks * (costs.ask_in * limits.usd_in + costs.ask_out * limits.usd_out)
    writes = load.sessions * (costs.write_in * limits.usd_in + costs.write_out * limits.usd_out)
    return users * asks * again, users * writes * again


def simulate(users: int, there: Size, seed: int = 0, costs: Costs = COSTS) -> Ran:
    """Four days, minute by minute."""
    chance, weights = np.random.default_rng(seed), np.tile(shape(LOAD), DAYS)
    came = chance.poisson(users * LOAD.sessions / DAY * weights)
    asked = chance.poisson(users * LOAD.asks / DAY * weights)
    taken, refused, queue, begun = np.zeros(DAYS * DAY), 0, 0, 0.0
    for minute in range(DAYS * DAY):
        queue += int(came[minute])
        away = OUTAGE[0] <= minute < sum(OUTAGE)
        refused += int(asked[minute]) if away else 0
        part = 0.75 if LOSS[0] <= minute < sum(LOSS) else 1.0
        room = 0.0 if away else _room(there, part, int(asked[minute]), int(came[minute]), costs)
        able = room + begun
        taken[minute] = min(queue, math.floor(able))
        queue -= int(taken[minute])
        begun = able - taken[minute] if queue else 0.0
    return _told(came, taken, refused)


def _room(there: Size, part: float, asks: int, sessions: int, costs: Costs) -> float:
    """Sessions that can be written in a minute, after its questions."""
    again, quotas = 1 + LOAD.repeated, there.quotas
    cpu = 60_000 * there.cores * part - asks * costs.ask_ms - sessions * costs.add_ms
    calls = min(there.flight * 60 / LIMITS.latency, quotas * LIMITS.requests) / again - asks
    tokens = quotas * LIMITS.tokens / again - asks * (costs.ask_in + costs.ask_out)
    most = min(
        cpu / costs.write_ms,
        calls / costs.write_calls,
        tokens / (costs.write_in + costs.write_out),
    )
    return max(0.0, most)


def _told(came: np.ndarray, taken: np.ndarray, refused: int) -> Ran:
    arrived, written = np.cumsum(came), np.cumsum(taken)
    # Minute in which the last session of each minute was written, first come, first served.
    ended = np.searchsorted(written, arrived)
    waited = (ended - np.arange(len(came)) + 1).clip(1)
    waiting = arrived - written
    usual = np.repeat(waited[: OUTAGE[0]], came[: OUTAGE[0]])
    back = sum(OUTAGE)
    short = max(int(waiting[: OUTAGE[0]].max()), 1)
    drained = int(np.argmax(waiting[back:] <= short))
    return Ran(
        float(np.percentile(usual, 99)),
        float(waited[OUTAGE[0] : LOSS[0]].max()),
        float(drained),
        int(waiting[back - 1]),
        refused,
        float(waited[LOSS[0] :].max()),
    )


def first_limits(costs: Costs = COSTS, limits: Limits = LIMITS) -> list[tuple[str, float]]:
    """The users at which one of each is full in the busiest hour, the fewest first."""
    one = need(1.0, costs, LOAD, limits)
    full = {
        f"worker CPU: {limits.cores} cores": limits.cores / one.cores,
        f"calls in flight: {limits.slots}": limits.slots / one.flight,
        f"requests of one quota: {limits.requests:,.0f} a minute": limits.requests / (one.calls * 60),
        f"tokens of one quota: {limits.tokens / 1e6:,.0f} million a minute": limits.tokens / one.tokens,
        f"commits of one PostgreSQL: {limits.commits:,.0f} a second": limits.commits / one.commits,
        f"storage of one partition in three years: {limits.gigabytes:,.0f} GB": limits.gigabytes
        / (3 * 365 * stored(1)),
    }
    return sorted(full.items(), key=lambda pair: pair[1])


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *body)]
    return "\n".join(lines)


def _number(value: float) -> str:
    """Two digits, or as many as it has before the point up to three; with commas."""
    if value == int(value) and value < 1000:
        return f"{value:.0f}"
    places = (1 if value < 1 else 2) - math.floor(math.log10(value))
    return f"{round(value, places):,.{max(0, places)}f}"


def _across(rows: Mapping[str, Sequence[float]]) -> str:
    head = ["", *(f"{users:,} users" for users in SCALES)]
    return _table(head, [[name, *map(_number, values)] for name, values in rows.items()])


def tables() -> dict[str, str]:
    """The tables of the page by name."""
    busy, there = [need(users) for users in SCALES], [size(users) for users in SCALES]
    ran = [simulate(users, each) for users, each in zip(SCALES, there, strict=True)]
    spent = [dollars(users) for users in SCALES]
    units = {name.replace("_", " "): value for name, value in asdict(COSTS).items()}
    return {
        "units": _table(["unit", "cost"], [[name, _number(value)] for name, value in units.items()]),
        "need": _across(
            {
                "questions a second": [each.asks for each in busy],
                "sessions a second": [each.sessions for each in busy],
                "calls a second": [each.calls for each in busy],
                "calls in flight": [each.flight for each in busy],
                "million tokens a minute": [each.tokens / 1e6 for each in busy],
                "cores": [each.cores for each in busy],
                "commits a second": [each.commits for each in busy],
            }
        ),
        "size": _across(
            {
                "worker processes, one a core": [each.cores for each in there],
                "calls in flight": [each.flight for each in there],
                "quotas of the provider": [each.quotas for each in there],
                "PostgreSQL primaries": [each.primaries for each in there],
                "partitions, for three years": [each.partitions for each in there],
                "GB stored a day": [stored(users) for users in SCALES],
                "dollars a day, questions": [each for each, _ in spent],
                "dollars a day, memories": [each for _, each in spent],
                "dollars a user and month": [30 * sum(each) / users for each, users in zip(spent, SCALES, strict=True)],
            }
        ),
        "ran": _across(
            {
                "usual day: 99 of 100 sessions in memory, minutes": [each.usual for each in ran],
                "endpoint gone for an hour: sessions queued": [each.queued for each in ran],
                "questions without an answer": [each.refused for each in ran],
                "longest wait of a session, minutes": [each.outage for each in ran],
                "queue as before, minutes after": [each.drained for each in ran],
                "a quarter of the workers gone: longest wait, minutes": [each.loss for each in ran],
            }
        ),
        "first": _table(["what is full", "at so many users"], [[name, _number(at)] for name, at in first_limits()]),
    }


def page() -> str:
    """docs/scale.md."""
    made, full, middle = tables(), first_limits(), SCALES[1]
    tight = replace(size(middle), flight=math.ceil(need(middle).flight))
    spent, queries = dollars(1)[1], sum(dollars(1))
    asked = {
        **made,
        "first_name": full[0][0].split(":")[0],
        "first_users": _number(full[0][1]),
        "second_name": full[1][0].split(":")[0],
        "second_users": _number(full[1][1]),
        "sessions": LOAD.sessions,
        "asks": LOAD.asks,
        "swing": f"{1 + LOAD.swing:g}",
        "repeated": f"{LOAD.repeated:.0%}",
        "latency": LIMITS.latency,
        "headroom": HEADROOM,
        "usd_in": f"{LIMITS.usd_in:.2f}",
        "usd_out": f"{LIMITS.usd_out:.2f}",
        "share": f"{spent / queries:.0%}",
        "middle": f"{middle:,}",
        "tight": _number(simulate(middle, tight).drained),
        "drained": _number(simulate(middle, size(middle)).drained),
    }
    return TEXT.format(**asked)


TEXT = """# Past one machine, on paper

Made by `python perf/scale.py --write`: four days simulated minute by minute, with the unit costs of one machine.
Nothing here was run at these sizes; what was run is in [production.md](production.md). A user says {sessions} sessions
of ten turns and asks {asks} questions a day, the busiest hour has {swing} times the mean, {repeated} of the calls are
made twice, a call takes {latency} seconds; prices are {usd_in} and {usd_out} dollars a million tokens. Change what is
not so for you at the top of the script. Left out: networks, backups and replicas, and the room that memories take in
processes.

## What one thing takes

Memory-R2, by `python perf/scale.py --measure`; milliseconds are of CPU, tokens are a session's or a question's.

{units}

## What the busiest hour needs

{need}

## What to set up

{headroom} times what the busiest hour needs, and one worker more.

{size}

- Workers are processes of `mempiler serve` or `mempiler memories remember` over one PostgreSQL; it is their queue, and
  a user is written by one of them at a time.
- Nothing is asked across users, so tables are cut by a hash of tenant and user: first into partitions of one database,
  then into databases. Which user is where is for what stands before the service to say.
- {share} of what is paid to the model is for memories. A method with fewer calls saves more than any machine does.

## What happens when something fails

{ran}

Questions are refused while the endpoint is gone, and sessions wait; none is lost. How long the queue takes afterwards
is a matter of the headroom in calls: at {middle} users {drained} minutes with it, {tight} without.

## What breaks first

One machine, one quota of a provider and one PostgreSQL, at their busiest hour:

{first}

The first is full at {first_users} users ({first_name}), the second at {second_users} ({second_name}).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="prints the unit costs of this machine")
    parser.add_argument("--write", action="store_true", help="writes the page")
    options = parser.parse_args()
    if options.measure:
        from scale_costs import measured

        print(Costs(**measured()))
    elif options.write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())


if __name__ == "__main__":
    main()
