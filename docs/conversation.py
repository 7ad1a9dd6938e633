"""A short conversation of an agent that has memory, as `make demo` shows it: the loop of a runtime, whole.

The model is a stand-in that follows a script: which tool it calls for what the user says, and what it replies when the
tool has answered. All else is as with a real one.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oryx_memory import MemoryService, ToolExecutor, current_agent, openai_tools
from oryx_memory.messages import Message, ToolCall, turns
from oryx_memory.prompt import build_prompt
from oryx_memory.sessions import open_sessions

SCRIPT: dict[str, tuple[str, Mapping[str, str], str]] = {
    "请记住：发布窗口是周二上午十点。": ("save_memory", {"content": "发布窗口是周二上午十点"}, "记住了。"),
    "Remember that Anna owns billing.": ("save_memory", {"content": "Anna owns billing", "scope": "core"}, "I will."),
    "哪天可以发布？": ("recall_memory", {"keyword": "发布窗口"}, "周二上午十点。"),
    "Is there anything on 上线发布?": ("recall_memory", {"keyword": "上线发布"}, "Only the window on Tuesday at ten."),
}
AGENT, SESSION = "demo", "cli:reader:demo"


def model(request: Mapping[str, Any]) -> dict[str, Any]:
    """The stand-in: its answer to a request, in the shape of OpenAI's chat completions."""
    said = next(message["content"] for message in reversed(request["messages"]) if message["role"] == "user")
    name, arguments, reply = SCRIPT[said]
    if request["messages"][-1]["role"] == "tool":
        return {"content": reply}
    call = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"content": "", "tool_calls": [{"id": f"call_{len(request['messages'])}", "function": call}]}


def main() -> None:
    service = MemoryService()
    executor = ToolExecutor(service)
    sessions = open_sessions(service.workspace, service.settings)
    sessions.create(SESSION)
    for said in SCRIPT:
        print(f"\nuser   {said}")
        turn = [Message("user", said)]
        with current_agent(AGENT):
            while turn[-1].role != "assistant" or turn[-1].tool_calls:
                prompt = build_prompt(
                    instructions="You help the operators.",
                    now=datetime.now(),
                    memory=service.build_context(),
                    turns=[*sessions.recent_turns(SESSION), *turns(turn)],
                    tools=openai_tools(),
                )
                turn += answered(model(prompt.openai()), executor)
            service.record_trigger(said, turn[-1].content)
        sessions.append(SESSION, *turn)
        print(f"agent  {turn[-1].content}")


def answered(answer: Mapping[str, Any], executor: ToolExecutor) -> list[Message]:
    """The model's message, and the results of the tools that it called."""
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in answer.get("tool_calls", ())
    )
    made = [Message("assistant", answer["content"], tool_calls=calls)]
    for call in calls:
        result = executor.run(call.name, call.arguments_json, agent=AGENT, session_id=SESSION).text
        shown = result.replace("\n", "\n       ")
        print(f"tool   {call.name} {call.arguments_json}\n       {shown}")
        made.append(Message("tool", result, tool_name=call.name, tool_call_id=call.id))
    return made


if __name__ == "__main__":
    main()
