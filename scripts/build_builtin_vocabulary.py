"""Trains the vocabulary of the built-in layout and writes it to linter/pkv_lint/prompt/builtin/.

What it learns from: the Python files of the standard library of the interpreter that runs it (code, comments,
docstrings), and JSON, logs and plain sentences that this script makes up from its own word list. No other input, no
network; the same interpreter version gives the same file.

    python scripts/build_builtin_vocabulary.py
"""

from __future__ import annotations

import ast
import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

OUTPUT = Path(__file__).parent.parent / "linter" / "pkv_lint" / "prompt" / "builtin" / "tokenizer.json"
VOCABULARY_SIZE = 8192
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Markers of the layout that are ordinary words to a reader: kept when the text is decoded without special tokens.
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")

# One character in front of a word belongs to it, digits stand alone, punctuation keeps the line break behind it.
SPLIT = (
    r"[^\r\n\p{L}\p{N}]?\p{L}+(?:'(?:s|t|re|ve|m|ll|d)\b)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _words(text: str) -> list[str]:
    return text.split()


# Those listed first come up more often.
EVERYDAY = _words(
    """
    the of and to a in is you that it for on with as are this be at have from or one by not but what all were we
    when your can said there use an each which she do how their if will up other about out many then them these
    so some her would make like him into time has look two more write go see number no way could people my than
    first water been call who now find long down day did get come made may part please thank thanks sorry hello
    yes okay sure help need want know let me I would like to could you can I have been unable to understand
    however because since while until before after during between through against cancel change book booking
    reservation flight passenger passengers airport airline ticket tickets economy business cabin basic upgrade
    baggage bags luggage insurance refund payment credit card gift certificate voucher travel traveler departure
    arrival origin destination date dates nonstop connecting available seats price prices total cost amount
    dollars hours delay delayed cancelled weather policy policies allowed eligible membership silver gold
    regular member user users profile account order orders item items product products return exchange shipping
    address email phone name names first last customer service agent human transfer request requests confirm
    confirmation proceed details detail information provide provided reason following current currently
    available options option choose select prefer instead another additional free charge fee apply update
    updated modify remove add added without within outside same different new old open closed today tomorrow
    yesterday morning evening night week month year monday tuesday wednesday thursday friday saturday sunday
    january february march april may june july august september october november december city country street
    state weather temperature degrees sunny rain answer question questions explain summary summarize write read
    list create delete search find check look show give take keep start stop run running build test tests
    testing error errors fail failed failure fix fixed bug issue issues code function functions class method
    module file files directory folder path line lines repository commit branch merge pull review change changes
    python script command shell terminal output input result results value values key keys string number integer
    boolean array object property properties required type types default description parameters parameter
    argument arguments schema model models token tokens prompt prompts cache prefix block blocks context message
    messages conversation history system assistant tool tools call calls response responses content role text
    image document documents note notes memory session server client database table column row query index data
    report analysis plan step steps task tasks goal project team work company customer market price stock
    finance bank money invoice contract legal health medical doctor patient school student teacher book story
    world life house home family child children man woman friend music movie game food water coffee dinner think
    thought important different small large high low good better best great right wrong true false sure correct
    possible should must never always often sometimes again still already only also even just very much most
    more less few every both either neither nothing something anything everything someone anyone everyone where
    why whether though although therefore here there this those these such rather quite almost enough together
    apart above below under over near far inside behind next previous several once twice three four five six
    seven eight nine ten hundred thousand million percent half quarter begin began end ended hold held bring
    brought leave left feel felt seem seemed become became remain remains consider considered include including
    included according based related similar general specific particular certain several common public private
    local global remote internal external original final main simple complex single multiple whole entire
    """
)

NAMES = _words(
    """
    id user_id order_id session_id request_id name first_name last_name email phone address street city state
    country zip date time timestamp created_at updated_at start end status type title description content text
    message messages role query limit offset page page_size total count items results value values key path url
    file_path directory command code language reason price amount currency quantity payment_method payment_id
    source origin destination flight_number reservation_id cabin passengers nonfree_baggages total_baggages
    insurance departure arrival model temperature max_tokens tools tool_choice function parameters properties
    required enum default additionalProperties items format metadata tags labels priority owner assignee enabled
    version location latitude longitude unit weather forecast score rank index parent children data payload
    """
)

VERBS = _words(
    "get list find search create update delete cancel send book read write run check calculate convert open close"
)
KINDS = ("string", "string", "string", "integer", "number", "boolean", "array", "object")


def main() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(SPECIAL_TOKENS) - len(MARKERS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.add_tokens([AddedToken(content, normalized=False, special=False) for content in MARKERS])
    state = json.loads(tokenizer.to_str())
    # "a b" is the older and shorter spelling of ["a", "b"], and still read.
    state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
    OUTPUT.write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{OUTPUT.name}: {tokenizer.get_vocab_size()} tokens, {OUTPUT.stat().st_size} bytes")


def texts() -> Iterator[str]:
    chance = random.Random(0)
    yield from library()
    for _ in range(12000):
        yield sentences(chance, EVERYDAY)
    for _ in range(2500):
        yield json.dumps({"type": "function", "function": tool(chance)})
        yield json.dumps(tool(chance), indent=2)
        yield json.dumps(record(chance, 2))
        yield json.dumps({"messages": [message(chance) for _ in range(4)]}, separators=(",", ":"))
        yield "\n".join(log_line(chance) for _ in range(4))


def library() -> Iterator[str]:
    """Source files, and their docstrings once more, so that prose weighs as much as code."""
    root = Path(sysconfig.get_path("stdlib"))
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).parts
        if {"site-packages", "test", "tests", "idlelib", "lib2to3", "encodings"} & set(parts):
            continue
        try:
            source = file.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError):
            continue
        yield source
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (docstring := ast.get_docstring(node)):
                yield docstring


def sentences(chance: random.Random, words: list[str]) -> str:
    """Words in no order: a vocabulary learns words, not grammar."""
    lines = []
    for _ in range(3):
        picked = [words[int(len(words) * chance.random() ** 2)] for _ in range(chance.randint(5, 14))]
        picked[0] = picked[0].capitalize()
        if len(picked) > 8:
            picked[4] += ","
        lines.append(" ".join(picked) + chance.choice(".. .?!:"))
    return chance.choice(("\n", " ", "\n- ", "\n\n")).join(lines)


def tool(chance: random.Random) -> dict[str, object]:
    properties = {
        name: {"type": chance.choice(KINDS), "description": sentences(chance, EVERYDAY).split("\n")[0]}
        for name in chance.sample(NAMES, chance.randint(1, 5))
    }
    return {
        "name": f"{chance.choice(VERBS)}_{chance.choice(NAMES)}",
        "description": sentences(chance, EVERYDAY),
        "parameters": {"type": "object", "properties": properties, "required": list(properties)[:2]},
    }


def record(chance: random.Random, depth: int) -> dict[str, object]:
    return {name: value(chance, depth) for name in chance.sample(NAMES, chance.randint(2, 6))}


def value(chance: random.Random, depth: int) -> object:
    made = chance.randrange(9)
    if made == 0 and depth:
        return record(chance, depth - 1)
    if made == 1 and depth:
        return [record(chance, depth - 1) for _ in range(chance.randint(1, 3))]
    if made == 2:
        return chance.choice((True, False, None))
    if made == 3:
        return round(chance.random() * 1000, 2)
    if made == 4:
        return chance.randrange(10000)
    if made == 5:
        return f"{chance.choice(EVERYDAY)}_{chance.choice(EVERYDAY)}_{chance.randrange(10000)}"
    if made == 6:
        return stamp(chance)
    return " ".join(chance.choice(EVERYDAY) for _ in range(chance.randint(1, 4)))


def message(chance: random.Random) -> dict[str, object]:
    role = chance.choice(("system", "user", "assistant", "tool"))
    if role == "assistant" and chance.random() < 0.5:
        arguments = json.dumps(record(chance, 1))
        call = {"name": f"{chance.choice(VERBS)}_{chance.choice(NAMES)}", "arguments": arguments}
        return {"role": role, "content": None, "tool_calls": [{"id": "call_0", "type": "function", "function": call}]}
    return {"role": role, "content": sentences(chance, EVERYDAY)}


def stamp(chance: random.Random) -> str:
    day = f"20{chance.randint(20, 29)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    return f"{day}T{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"


def log_line(chance: random.Random) -> str:
    level = chance.choice(("INFO", "DEBUG", "WARNING", "ERROR"))
    text = " ".join(chance.choice(EVERYDAY) for _ in range(6))
    return f"{stamp(chance)} {level} {chance.choice(NAMES)}: {text} ({chance.choice(NAMES)}={chance.randrange(10000)})"


if __name__ == "__main__":
    main()
