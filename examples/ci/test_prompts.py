"""A test for a project of your own: the prompts of its agent do not change behind its back."""

from pkv_lint import assert_prefix_stable


def requests_of_a_conversation():
    """What the agent sends in two turns; here written down, in a project recorded from a stubbed client."""
    system = {"role": "system", "content": "You are a clerk. Answer in short sentences and name your sources."}
    first = [system, {"role": "user", "content": "Which orders are open?"}]
    yield {"messages": first}
    yield {"messages": [*first, {"role": "assistant", "content": "None."}, {"role": "user", "content": "And paid?"}]}


def test_prompts_are_stable():
    assert_prefix_stable(requests_of_a_conversation())
