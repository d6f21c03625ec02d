"""The cache salt differs between requests that share a prefix.

## What it does

Reports requests that share tokens with earlier ones under another `cache_salt`. An error when the salt changes with
every request, a note with its cost when it separates tenants.

## Why it matters

The salt is part of the hash of the first block, and every other block's hash builds on it: another salt reuses
nothing.

## Example

    "cache_salt": "9e3779b97f4a7c15"      (new in every request)

## Use instead

    "cache_salt": "tenant-17"

Give one salt per group of users who may share a cache.

## Fix safety

A salt keeps users from telling by timing what others sent. Do not share one across a trust boundary.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group

CODE = "PKV601"
NAME = "cache-salt-churn"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Use one salt per tenant, or none."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("salt"):
        churns = any(facts.salts_in_session(cause.turn) > 1 for cause in group.causes) or facts.salt_per_request
        message = "is new in every request" if churns else "separates requests that share a prefix"
        yield for_group(rule, facts, group, message, FIX, severity=SEVERITY if churns else "info")
