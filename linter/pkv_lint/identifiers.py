"""Identifiers in running text: by their shape (UUID, ULID, JWT, hash), or by the key in front of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Shape = Literal["uuid", "ulid", "jwt", "trace", "hash", "prefixed", "random", "keyed"]
AROUND = 200
"""Characters around a span in which an identifier that touches it is looked for."""
KEY_LENGTH = 40
"""Characters in front of a value in which the key that names it may stand."""

# One word of an identifier's alphabet; dots only in JWTs, slashes and plus signs only in base64.
TOKEN = re.compile(r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|(?<![\w.])/?(?:[\w-]+[+/])*[\w-]+={0,2}|[\w-]+={0,2}", re.ASCII)
SHAPES: tuple[tuple[Shape, re.Pattern[str]], ...] = (
    ("uuid", re.compile(r"(?:[a-z]{2,16}[_-])?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.I)),
    ("jwt", re.compile(r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),
    # W3C traceparent, AWS X-Ray.
    ("trace", re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|1-[0-9a-f]{8}-[0-9a-f]{24}", re.I)),
    ("ulid", re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}|[0-7][0-9a-hjkmnp-tv-z]{25}")),
    ("hash", re.compile(r"(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{12,128}|(?=\d*[A-F])(?=[A-F]*\d)[0-9A-F]{12,128}")),
)
PREFIXED = re.compile(r"([A-Za-z][A-Za-z0-9]{1,15})[_-](?:[A-Za-z]{2,12}[_-])?([A-Za-z0-9]{6,64})")
# What names the request, the conversation or the trace that a text belongs to.
REQUEST_WORDS = (
    r"request|req|session|sess|trace|span|correlation|corr|conversation|conv|convo|run|thread|invocation|transaction|txn|"
    r"message|msg|chat|job|task|call|event|execution|workflow|operation|interaction|turn|instance|batch|context|"
    r"connection|dialog|dialogue|anfrage|sitzungs?|vorgangs?|gesprächs?|requête|demande|sesión|solicitud|petición|sessão|"
    r"requisição|pedido|sessione|richiesta|sessie|verzoek|aanvraag|запроса?|сессии|сессия|сеанса?|трассировки|请求|会话|"
    r"追踪|跟踪|對話|对话|リクエスト|セッション|トレース|会話|요청|세션|추적|대화|الطلب|الجلسة"
)
ID_WORDS = (
    r"ids?|uuid|guid|ulid|identifier|nonce|rid|sid|cid|tid|etag|kennung|identifiant|identificador|identificatore|"
    r"идентификатор|编号|標識|标识|番号|識別子|번호|식별자|معرف"
)
HASH_WORDS = r"hash|digest|fingerprint|signature|sig|token|key|jwt|bearer"
# Whose identifier is that of a person or a thing: the same in all their requests.
OWNERS = re.compile(
    r"user|customer|client|account|tenant|org|member|employee|patient|order|ticket|product|item|kunde|client|cliente|"
    r"usuario|usuário|utente|klant|клиент|пользовател|客户|用户|顧客|고객|사용자|commit|build|version|rev|sha\b|port|pid|model",
    re.I,
)
KEY = re.compile(
    rf"(?<![^\W_])(?:(?P<request>(?:(?P<front>{ID_WORDS})\s(?:de la |de |der |des |della |del |d')?)?"
    rf"(?:{REQUEST_WORDS}))"
    rf"(?:[\s_.-]?(?P<id>{ID_WORDS}|key|token|ref|number|no|nr|hash|nummer))?"
    rf"|(?P<alone>(?:[^\W\d_]+[\s_.-])?(?:{ID_WORDS})|(?-i:[a-z]+I[dD]))|(?P<hash>{HASH_WORDS}))"
    r"[\"'`*)\]]*\s?(?P<sign>[:=#>\u2192\uff1a]|\bis\b|\(|\[|\s)\s?[\"'`*(\[<]*$",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Identifier:
    """`text[start:end]` is an identifier; `of_request` says that a key in front of it names a request, a session or a
    trace."""

    start: int
    end: int
    shape: Shape
    of_request: bool


def find_identifiers(text: str, start: int, end: int) -> Iterator[Identifier]:
    """The identifiers that touch `text[start:end]`, in order."""
    first = max(text.rfind("\n", 0, start) + 1, start - AROUND)
    # Not from the middle of a long word: it would have another shape.
    for token in TOKEN.finditer(text, first, min(len(text), end + AROUND)):
        if token.start() >= max(end, start + 1):
            return
        if token.end() <= start:
            continue
        for begin, stop in parts(token):
            if stop > start and begin < max(end, start + 1) and (found := identifier(text, begin, stop)):
                yield found


def parts(token: re.Match[str]) -> Iterator[tuple[int, int]]:
    """A word as a whole when it is base64, else the pieces between its slashes."""
    word = token[0]
    if "/" not in word or (not word.startswith("/") and is_random(word) and word.count("/") * 12 <= len(word)):
        yield token.span()
        return
    for piece in re.finditer(r"[^/]+", word):
        yield token.start() + piece.start(), token.start() + piece.end()


def identifier(text: str, start: int, end: int) -> Identifier | None:
    word = text[start:end]
    if not any(map(str.isdigit, word)):
        return None
    key = KEY.search(text, max(text.rfind("\n", 0, start) + 1, start - KEY_LENGTH), start)
    shape = shape_of(word)
    if shape is None and key and keyed(word, key):
        shape = "keyed"
    if shape is None:
        return None
    named = bool(key and key["request"])
    # "Message 12345678 bytes" names no message.
    clear = shape != "keyed" or bool(key and (key["id"] or key["front"] or key["sign"] in tuple(":=#>\uff1a")))
    return Identifier(start, end, shape, named and clear)


def shape_of(word: str) -> Shape | None:
    for shape, pattern in SHAPES:
        if pattern.fullmatch(word) and (shape != "ulid" or any(map(str.isdigit, word[1:]))):
            return shape
    prefixed = PREFIXED.fullmatch(word)
    if prefixed and is_mixed(prefixed[2]):
        return "prefixed"
    return "random" if len(word) >= 16 and is_random(word) else None


def keyed(word: str, key: re.Match[str]) -> bool:
    """Whether a key makes this word an identifier: any value of an `id`, no counter behind `session` or `request`."""
    if key["alone"]:
        return not OWNERS.search(key["alone"])
    if key["id"] or key["front"]:
        return not word.isdigit() or len(word) > 3
    return is_mixed(word) or is_hex(word) or (word.isdigit() and len(word) >= 8)


def is_mixed(word: str) -> bool:
    """Letters and digits in no order that a person would write: `8f3k2x`, not `abc123`."""
    if len(word) < 4 or word.isdigit() or word.isalpha():
        return False
    kinds = ["d" if character.isdigit() else "a" for character in word if character.isalnum()]
    changes = sum(one != other for one, other in pairwise(kinds))
    return changes >= 2 or (changes == 1 and kinds[0] == "d" and is_hex(word))


def is_hex(word: str) -> bool:
    return len(word) >= 4 and not word.isdigit() and re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", word) is not None


def is_random(word: str) -> bool:
    """Upper and lower case and digits mixed, as in base64."""
    classes = [
        "d" if character.isdigit() else "u" if character.isupper() else "l" for character in word if character.isalnum()
    ]
    changes = sum(one != other for one, other in pairwise(classes))
    return len(set(classes)) == 3 and changes * 3 >= len(classes)
