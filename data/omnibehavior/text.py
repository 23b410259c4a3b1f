"""OmniBehavior's records as text: the situation, and apart from it the reaction, in Chinese or in English.

What is empty is left out. The order of the fields and their names are ours; the released renderer's are not described.
Long texts are cut at `DETAIL` characters, as released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from .records import gold, is_chinese, next_message, number, reactions, scene_of, took_place, truth, watch_seconds

DETAIL = 10_000
"""Most characters of one field."""

_LABELS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "caption": ("title", "标题"),
        "item_title": ("product", "商品"),
        "live_title": ("title", "标题"),
        "product": ("product", "产品"),
        "keyword": ("searched for", "搜索词"),
        "live_category": ("category", "类目"),
        "query_category": ("category", "类目"),
        "industry_main": ("industry", "行业"),
        "industry_sub": ("branch", "子行业"),
        "category_level1_name": ("category", "一级类目"),
        "category_level2_name": ("sub-category", "二级类目"),
        "category_level3_name": ("kind", "三级类目"),
        "industry_level1_name": ("industry", "一级行业"),
        "industry_level2_name": ("branch", "二级行业"),
        "industry_level3_name": ("field", "三级行业"),
        "live_game_name": ("game", "游戏"),
        "is_shop_live": ("sells products", "带货直播"),
        "duration": ("length", "时长"),
        "item_price": ("price", "价格"),
        "product_source": ("found in", "来源"),
        "photo_type": ("form", "形式"),
        "is_verified": ("author verified", "作者认证"),
        "verification_type": ("kind of verification", "认证类型"),
        "fans_user_num": ("followers of the author", "作者粉丝数"),
        "fans_user_num_op_range": ("followers of the author", "作者粉丝数"),
        "upload_timestamp": ("uploaded", "发布时间"),
        "show_cnt": ("shown", "曝光"),
        "play_cnt": ("played", "播放"),
        "complete_play_cnt": ("played to the end", "完播"),
        "like_cnt": ("likes", "点赞"),
        "comment_cnt": ("comments", "评论"),
        "share_cnt": ("shares", "分享"),
        "collect_cnt": ("favourites", "收藏"),
        "download_cnt": ("downloads", "下载"),
        "follow_cnt": ("new followers", "涨粉"),
        "report_cnt": ("reports", "举报"),
        "reduce_similar_cnt": ("asked for fewer of these", "减少推荐"),
        "live_total_user_cnt": ("viewers", "观众"),
        "live_total_view_cnt": ("views", "观看次数"),
        "live_total_view_duration": ("seconds viewed", "观看总时长"),
        "live_like_cnt": ("likes", "点赞"),
        "live_comment_cnt": ("comments", "评论"),
        "item_num_180d_sales": ("sold in 180 days", "180天销量"),
        "item_num_180d_buyer": ("buyers in 180 days", "180天买家"),
        "item_num_180d_rebuyer": ("bought again in 180 days", "180天复购"),
        "item_num_180d_cart": ("in carts in 180 days", "180天加购"),
        "item_num_good_assess": ("good reviews", "好评"),
        "item_desc": ("description", "描述"),
        "live_cover_content": ("cover", "封面"),
        "items": ("products", "商品"),
        "ocr": ("words shown", "画面文字"),
        "ocr_text": ("words shown", "画面文字"),
        "asr": ("words said", "语音文字"),
        "asr_text": ("words said", "语音文字"),
        "ticket_category": ("concern", "工单类型"),
        "product_name": ("product", "商品"),
        "product_category_info": ("category", "类目"),
        "item_qty": ("quantity", "数量"),
        "express_fee": ("postage", "运费"),
        "pay_order_time": ("paid", "付款时间"),
        "dialogue": ("dialogue", "对话"),
    }
)
"""English and Chinese names of the context's fields, in the order of the text."""

_REACTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "like": ("liked", "点赞"),
        "comment": ("commented", "评论"),
        "share": ("shared", "分享"),
        "collect": ("saved as a favourite", "收藏"),
        "download": ("downloaded", "下载"),
        "follow": ("followed", "关注"),
        "unfollow": ("unfollowed", "取消关注"),
        "dislike": ("disliked", "不喜欢"),
        "report": ("reported", "举报"),
        "cart": ("put into the cart", "加入购物车"),
        "click_cart": ("opened the shop", "点开购物车"),
        "purchase": ("bought", "下单成功"),
        "conversion": ("converted", "转化"),
        "activation": ("activated", "激活"),
        "submit": ("submitted the form", "提交表单"),
        "send_gift": ("sent a gift", "送礼物"),
        "search": ("searched", "搜索"),
        "dialogue": ("wrote", "说"),
    }
)
_NOTHING = ("no reaction", "无互动")
_UNTOLD = frozenset({("live", "cart")})
"""Reactions that the released code does not tell: in a live stream `click_cart` is the one that counts."""
_HIDDEN = frozenset({"user_id", "photo_id", "author_id", "item_id", "live_id"})


def situation(record: Mapping[str, Any]) -> str:
    """What the user saw, on one line, without the reaction."""
    chinese, context = is_chinese(record.get("type")), record.get("context") or {}
    if not isinstance(context, Mapping):
        return str(context)[:DETAIL]
    order = [*(name for name in _LABELS if name in context), *(name for name in context if name not in _LABELS)]
    # The words of a search are what the user did.
    hidden = _HIDDEN | {"keyword"} if "search_keyword" in gold(record) else _HIDDEN
    shown = ((name, _value(name, context[name], chinese)) for name in order if name not in hidden)
    parts = [
        f"{_LABELS.get(name, (name, name))[chinese]}: {' '.join(text[:DETAIL].split())}" for name, text in shown if text
    ]
    return ("；" if chinese else "; ").join(parts)


def reaction(record: Mapping[str, Any]) -> str:
    """What the user did, on one line; "no reaction" where the record names none that took place."""
    chinese = is_chinese(record.get("type"))
    parts = list(dict.fromkeys(_reactions(record, chinese)))
    return ("；" if chinese else "; ").join(parts) if parts else _NOTHING[chinese]


def _reactions(record: Mapping[str, Any], chinese: bool) -> Iterator[str]:
    """What took place, by the rules of the gold labels: practice must not teach what evaluation calls wrong."""
    scene, completed = scene_of(record.get("type")), gold(record).get("video_completed")
    for action in reactions(record):
        kind = str(action["type"])
        if kind == "watch":
            if seconds := watch_seconds(scene, action):
                yield f"观看{seconds:g}秒" if chinese else f"watched {seconds:g} s"
            if completed:
                yield "看完" if chinese else "watched to the end"
            completed = False
        elif took_place(action) and (scene, kind) not in _UNTOLD:
            words, said = _REACTIONS.get(kind, (kind, kind))[chinese], _said(kind, action)
            yield f"{words} ({_flat(said)})" if said else words


def _said(kind: str, action: Mapping[str, Any]) -> Any:
    return next_message([action]) if kind == "dialogue" else action.get("keyword") or action.get("comment_detail_list")


def _value(name: str, value: Any, chinese: bool) -> str:
    if value is None or value == "" or value == []:
        return ""
    if name in ("is_shop_live", "is_verified"):
        return ("yes", "是")[chinese] if truth(value) else ""
    if name == "duration" and (seconds := number(value)) is not None:
        return f"{seconds:g}{'秒' if chinese else ' s'}"
    return _flat(value)


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(text for part in value.values() if (text := _flat(part)))
    if isinstance(value, list):
        return ", ".join(text for part in value if (text := _flat(part)))
    return "" if value is None else str(value)
