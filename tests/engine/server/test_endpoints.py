"""The endpoints beside the two that generate."""

from __future__ import annotations

import re

from pkv_engine.server.service import ServingOptions

CHAT = {"messages": [{"role": "user", "content": "Say it."}]}


def test_tokenize(running) -> None:
    answer = running.client.post("/tokenize", json={"prompt": "Say it.", "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"]) and answer["max_model_len"] == 2048
    assert "Ġit" in answer["token_strs"]
    assert running.client.post("/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": "Say it."}


def test_tokenize_messages_as_they_are_rendered(running) -> None:
    tokens = running.client.post("/tokenize", json=CHAT).json()["tokens"]
    chat = running.client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 1, "return_token_ids": True})
    assert tokens == chat.json()["prompt_token_ids"]
    long = {"messages": [{"role": "user", "content": "word " * 5000}]}
    assert running.client.post("/tokenize", json=long).json()["count"] > 5000


def test_tokenize_refuses(running) -> None:
    for path, body, status in (
        ("/tokenize", {}, 400),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404),
        ("/tokenize", {"messages": []}, 400),
        ("/detokenize", {"tokens": [-1]}, 400),
        ("/detokenize", {"tokens": [2**31]}, 400),
        ("/detokenize", {"tokens": [1], "model": "other"}, 404),
    ):
        answer = running.client.post(path, json=body)
        assert answer.status_code == status and answer.json()["error"]["code"] == status


def test_metrics(serving) -> None:
    with serving() as server:
        for _ in range(2):
            server.client.post("/v1/completions", json={"prompt": list(range(1, 65)), "max_tokens": 3})
        text = server.client.get("/metrics").text

        def value(name: str) -> float:
            return float(re.search(rf"^pkv:{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE)[1])

        assert value("prefix_cache_queries_total") == 128 and value("prefix_cache_hits_total") == 48
        assert value("num_requests_running") == value("num_requests_waiting") == value("kv_cache_usage_perc") == 0
        assert value("prompt_tokens_total") == 128 and value("generation_tokens_total") == 6
        assert value("request_success_total") == 2
        assert value("time_to_first_token_seconds_count") == value("e2e_request_latency_seconds_count") == 2
        assert value("inter_token_latency_seconds_count") == 4
        assert value("request_prompt_tokens_sum") == 128 and value("request_generation_tokens_sum") == 6
        info = dict(re.findall(r'(\w+)="([^"]*)"', re.search(r"cache_config_info({.*})", text)[1]))
        assert info["block_size"] == "16" and info["num_gpu_blocks"] == "1024"
        assert info["enable_prefix_caching"] == "True" and info["prefix_caching_hash_algo"] == "sha256"


def test_reset_prefix_cache(serving) -> None:
    with serving() as server:
        ask = {"prompt": list(range(1, 65)), "max_tokens": 1}

        def cached() -> int:
            usage = server.client.post("/v1/completions", json=ask).json()["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        assert [cached(), cached()] == [0, 48]
        answer = server.client.post("/reset_prefix_cache")
        assert answer.status_code == 200 and answer.json() == {"success": True}
        assert cached() == 0
        server.typist.pause = 0.01
        with server.client.stream("POST", "/v1/completions", json={**ask, "max_tokens": 1000, "stream": True}):
            answer = server.client.post("/reset_prefix_cache")
            assert answer.status_code == 409 and answer.json() == {"success": False}


def test_names(serving) -> None:
    with serving(ServingOptions(served_model_name=("one", "two"))) as server:
        assert [model["id"] for model in server.client.get("/v1/models").json()["data"]] == ["one", "two"]
        for name, status in (("one", 200), ("two", 200), (None, 200), ("typist", 404)):
            answer = server.client.post("/v1/chat/completions", json={**CHAT, "model": name, "max_tokens": 1})
            assert answer.status_code == status


def test_priority(serving) -> None:
    with serving(policy="priority") as server:
        answer = server.client.post("/v1/chat/completions", json={**CHAT, "priority": -3, "max_tokens": 1})
        assert answer.status_code == 200


def test_request_id(running) -> None:
    by_body = running.client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 1, "request_id": "mine"})
    by_header = running.client.post(
        "/v1/chat/completions", json={**CHAT, "max_tokens": 1, "request_id": "mine"}, headers={"X-Request-Id": "other"}
    )
    assert by_body.json()["id"] == "chatcmpl-mine" and by_header.json()["id"] == "chatcmpl-other"


def test_other_paths_and_bodies(running) -> None:
    assert running.client.get("/v1/nothing").json()["error"]["code"] == 404
    assert running.client.get("/v1/completions").json()["error"]["code"] == 405
    assert running.client.get("/version").json()["version"]
    long = b'{"n": 1' + b"0" * 5000 + b"}"
    for content in (b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"messages": "\xff"}', long):
        answer = running.client.post(
            "/v1/chat/completions", content=content, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400 and answer.json()["error"]["message"]
    answer = running.client.post("/v1/chat/completions", content=b'{"messages": []}')
    assert answer.status_code == 400, "no media type"
    lone = b'{"messages": [{"role": "user", "content": "\\ud800"}], "model": "\\ud800"}'
    answer = running.client.post("/v1/chat/completions", content=lone, headers={"content-type": "application/json"})
    assert answer.status_code == 404 and "\ud800" in answer.json()["error"]["message"]
