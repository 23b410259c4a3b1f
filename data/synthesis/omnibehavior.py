"""The bundled sample in OmniBehavior's forms: invented users of an invented platform, with known habits.

    write_omnibehavior(folder)  ──>  eight raw files, u01.json to u08.json, Chinese and English in turn
    write_prepared(file)        ──>  experiment_data.json with two English users and a sixth of their September

What a user does follows from what is true of this user, and from chance:

    preference         what four topics show is liked; videos of three others are left after seconds
    time-of-day habit  from eight in the evening on, products and advertisements are bought, activated or signed up for
    limits             products above the user's own price never go into the cart; authors are followed only where the
                       user has liked the topic all along
    change of taste    in the third week of September another topic takes the place of a liked one
    chance             one decision in fifteen is turned round

What a user is shown drifts: half of the topics come up in the first days of September, hardly ever in the rest of it,
and are back in October, oftener than the others, so that the newest records alone do not tell everything that can be
known.

Limits: every habit is plainer than real ones, and a record has few of the real fields (no words shown or said,
few counts). Chinese and English users differ in language only.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

SEED = 11
USERS = 8
BEFORE, SINCE = 320, 28
"""Records of September and of the two months after it, without the edge days; one more is on each of these."""
TOPICS = (
    ("cooking", "美食"),
    ("football", "足球"),
    ("camping", "露营"),
    ("knitting", "编织"),
    ("street dance", "街舞"),
    ("aquariums", "水族"),
    ("sailing", "帆船"),
    ("chess", "象棋"),
    ("pottery", "陶艺"),
    ("astronomy", "天文"),
    ("gardening", "花草"),
    ("skiing", "滑雪"),
)
_NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "video": ("Video Browsing", "视频浏览"),
        "live": ("Live Streaming", "直播间"),
        "ad": ("Advertisement", "广告推荐"),
        "shop": ("E-commerce", "商城购物"),
        "search": ("Search Behavior", "搜索行为"),
    }
)
_VIDEOS = (
    ("A first try at {}", "第一次尝试{}"),
    ("Three tips for {}", "{}的三个技巧"),
    ("My week of {}", "我的{}一周"),
)
_STREAMS = (("An evening of {}", "{}之夜"), ("Live: all about {}", "直播聊{}"))
_GOODS = (("A bag for {}", "{}收纳包"), ("Starter set for {}", "{}入门套装"), ("A book on {}", "{}图鉴"))
_ADS = (("Course in {}", "{}课程"), ("App for {}", "{}应用"))
_TURN = datetime(2025, 9, 18)
_DRIFT, _BACK = datetime(2025, 9, 11), datetime(2025, 10, 1)
"""Until when the early topics are shown, and from when on again."""


@dataclass(frozen=True)
class Habits:
    """What is true of one user."""

    chinese: bool
    liked: tuple[int, ...]
    lost: int
    """The topic that is liked until another one takes its place."""
    later: int
    """That other topic."""
    hated: tuple[int, ...]
    early: tuple[int, ...]
    """Topics of the first days, which come back in October."""
    price: int
    """The highest price that the user pays."""

    def likes(self, topic: int, time: datetime) -> bool:
        """Whether the user likes a topic at a moment."""
        return topic in self.liked or topic == (self.lost if time < _TURN else self.later)

    def follows(self, topic: int, time: datetime) -> bool:
        """Whether the user follows who shows it: not before the taste has lasted."""
        lasting = topic in self.liked or time < _TURN or time > _TURN + timedelta(days=14)
        return self.likes(topic, time) and lasting

    def shown(self, rng: random.Random, time: datetime) -> int:
        """Draws a topic of a moment."""
        others = [topic for topic in range(len(TOPICS)) if topic not in self.early]
        share = 0.95 if time < _DRIFT else 0.05 if time < _BACK else 0.75
        return rng.choice(self.early if rng.random() < share else others)


def write_omnibehavior(folder: Path, seed: int = SEED) -> None:
    """Writes the raw files; the same seed gives the same bytes.

    Args:
        folder: Where to; made if missing.
        seed: Draws everything.
    """
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, USERS + 1):
        one = habits(rng, chinese=number % 2 == 1)
        history = [*_records(rng, one, september=True), *_records(rng, one, september=False)]
        user = {"user_profile": _profile(rng, one), "action_history": history}
        _write(folder / f"u{number:02}.json", {f"u{number:02}": user})


def write_prepared(path: Path, seed: int = SEED + 1) -> None:
    """Writes the prepared experiment file; the same seed gives the same bytes.

    Args:
        path: The file.
        seed: Draws everything.
    """
    rng = random.Random(seed)
    users = []
    for number in (1, 2):
        one = habits(rng, chinese=False)
        profile = _profile(rng, one)
        base, since = [row[1:-1] for row in ([*_records(rng, one, september)] for september in (True, False))]
        base = base[::6]
        places = [n for n, row in enumerate(since) if row["type"] != _NAMES["search"][0]][3::2]
        tests = [{"action": since[place], "test_time_index": place} for place in places]
        users.append(
            {
                "user_id": f"p{number:02}",
                "user_profile": profile,
                "base_history": base,
                "test_time_all_actions": since,
                "test_actions": tests,
                "skipped_actions": [],
                "stats": {"base_history": len(base), "test_actions": len(tests)},
            }
        )
    _write(path, {"metadata": {"language": "en", "made_by": "mempiler.data.synthesis.omnibehavior"}, "users": users})


def habits(rng: random.Random, chinese: bool) -> Habits:
    """Draws what is true of one user."""
    topics = rng.sample(range(len(TOPICS)), len(TOPICS))
    return Habits(
        chinese,
        liked=tuple(topics[:4]),
        lost=topics[4],
        later=topics[5],
        hated=tuple(topics[6:9]),
        early=(*topics[:3], topics[6], *topics[9:11]),
        price=rng.choice((40, 60, 80)),
    )


def _write(path: Path, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # A record a line, so that people can read it and tools can compare it.
    path.write_text(text.replace('},{"type"', '},\n{"type"') + "\n", encoding="utf-8", newline="\n")


def _profile(rng: random.Random, one: Habits) -> str:
    age, city = rng.randrange(19, 60), rng.choice((("Chengdu", "成都"), ("Xiamen", "厦门"), ("Harbin", "哈尔滨")))
    return f"{age}岁，住在{city[1]}。" if one.chinese else f"{age} years old, lives in {city[0]}."


def _records(rng: random.Random, one: Habits, september: bool) -> Iterator[dict[str, Any]]:
    """Records in time order, the first and the last on the edges of the period."""
    first, last = (
        (datetime(2025, 9, 1), datetime(2025, 9, 30)) if september else (datetime(2025, 10, 1), datetime(2025, 11, 30))
    )
    count, days = (BEFORE, 28) if september else (SINCE, 59)
    times = sorted(_moment(rng, first + timedelta(days=rng.randrange(days + 1))) for _ in range(count))
    for time in (*times, _moment(rng, last)):
        scene = rng.choices(("video", "live", "ad", "shop", "search"), (8, 4, 4, 5, 1))[0]
        topic = one.shown(rng, time)
        yield {
            "type": _NAMES[scene][one.chinese],
            "timestamp": f"{time:%Y-%m-%d %H:%M:%S}",
            **_KINDS[scene](rng, one, topic, time),
        }


def _moment(rng: random.Random, day: datetime) -> datetime:
    return day + timedelta(hours=rng.choice((8, 12, 13, 20, 21, 22)), seconds=rng.randrange(3600))


def _words(rng: random.Random, one: Habits, forms: tuple[tuple[str, str], ...], topic: int) -> str:
    return rng.choice(forms)[one.chinese].format(TOPICS[topic][one.chinese])


def _does(rng: random.Random, wanted: bool) -> bool:
    return wanted is not (rng.random() < 1 / 15)


def _video(rng: random.Random, one: Habits, topic: int, time: datetime) -> dict[str, Any]:
    length, likes = rng.randrange(20, 90), one.likes(topic, time)
    whole = topic not in one.hated and _does(rng, likes)
    watched = length if whole else rng.randrange(1, 5) if topic in one.hated else rng.randrange(5, length // 2 + 1)
    done: list[dict[str, Any]] = [
        {"type": "watch", "play_duration": f"{watched}秒" if one.chinese else watched, "is_complete_play": int(whole)}
    ]
    wanted = {"like": likes, "collect": likes and length > 60, "follow": one.follows(topic, time), "share": False}
    done += [{"type": kind} for kind, value in wanted.items() if _does(rng, value)]
    context = {"caption": _words(rng, one, _VIDEOS, topic), "duration": length, "like_cnt": rng.randrange(9000)}
    return {"context": context, "action": done}


def _live(rng: random.Random, one: Habits, topic: int, time: datetime) -> dict[str, Any]:
    likes, sells = one.likes(topic, time), rng.random() < 0.4
    done: list[dict[str, Any]] = [{"type": "watch", "play_duration": rng.randrange(60, 900) if likes else 9}]
    wanted = {
        "like": likes,
        "comment": likes and time.hour >= 20,
        "follow": one.follows(topic, time),
        "send_gift": False,
        **({"click_cart": likes and time.hour >= 20} if sells else {}),
    }
    flags = {"click_cart": {"is_click_cart_action": 1}}
    done += [{"type": kind, **flags.get(kind, {})} for kind, value in wanted.items() if _does(rng, value)]
    context = {
        "live_title": _words(rng, one, _STREAMS, topic),
        "live_category": TOPICS[topic][one.chinese],
        "is_shop_live": int(sells),
    }
    return {"context": context, "action": done}


def _ad(rng: random.Random, one: Habits, topic: int, time: datetime) -> dict[str, Any]:
    wants = one.likes(topic, time) and time.hour >= 20
    done: list[dict[str, Any]] = [{"type": "like"}] if _does(rng, one.likes(topic, time)) else []
    done += [{"type": "activation", "activation_cnt": int(_does(rng, wants))}]
    done += [{"type": "submit", "form_submit_total_cnt": 1}] if _does(rng, wants) else []
    context = {
        "product": _words(rng, one, _ADS, topic),
        "industry_main": ("education", "教育")[one.chinese],
        "show_cnt": rng.randrange(1, 5000),
    }
    return {"context": context, "action": done}


def _shop(rng: random.Random, one: Habits, topic: int, time: datetime) -> dict[str, Any]:
    price = rng.choice((19, 35, 55, 75, 120))
    cart = _does(rng, one.likes(topic, time) and price <= one.price)
    buys = cart and _does(rng, time.hour >= 20)
    done = [{"type": "cart", "is_add_to_cart": int(cart)}, *([{"type": "purchase", "is_pay": 1}] if buys else [])]
    context = {
        "item_title": _words(rng, one, _GOODS, topic),
        "item_price": price,
        "item_num_180d_sales": rng.randrange(3000),
    }
    return {"context": context, "action": done}


def _search(rng: random.Random, one: Habits, topic: int, time: datetime) -> dict[str, Any]:
    wanted = TOPICS[one.lost if time < _TURN else one.later][one.chinese]
    return {"context": {"keyword": wanted}, "action": [{"type": "search", "keyword": wanted}]}


_KINDS = MappingProxyType({"video": _video, "live": _live, "ad": _ad, "shop": _shop, "search": _search})
