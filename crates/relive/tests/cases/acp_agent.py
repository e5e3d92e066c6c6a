"""An agent that speaks version 1 of the Agent Client Protocol, for the tests. The prompt is its script: a line each.

    say TEXT      says it
    run COMMAND   asks for permission, and runs it in a shell
    ask           asks its client for a file, which no client of ours offers, always with the same id
    form SCHEMA   asks a person to fill in a form with these properties, and says what came back
    wait          works until it is cancelled
    call MODEL    asks the provider of its environment, as gemini or qwen would, and says what was counted
    flood COUNT   prints COUNT MiB of errors, so that its log forgets what came before
    die           ends in the middle of the turn
    leave         ends in the middle of the turn without a word, as if its work was done

Its conversations are in the directory STATE, a file each. OFFERS lists what it can do with them: load, resume, fork.
With `narrow` it offers no way to allow a command, with `always` none to allow it once.
The file of that name in STATE comes first: an update of the agent.
"""

import json, os, subprocess, sys, threading, urllib.error, urllib.request

offers = os.environ.get("OFFERS", "").split()
state = os.environ.get("STATE", ".")
if os.path.exists(os.path.join(state, "OFFERS")):
    offers = open(os.path.join(state, "OFFERS")).read().split()
writing = threading.Lock()
replies, cancelled = {}, threading.Event()
asked = 0


def write(message):
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def update(session, update_kind, **fields):
    write({"method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": update_kind, **fields}}})


def say(session, kind, text):
    update(session, kind, content={"type": "text", "text": text})


def ask(method, params, number=None):
    global asked
    asked += 1
    number, replied = number or asked, threading.Event()
    replies[number] = [replied, None]
    write({"id": number, "method": method, "params": params})
    while not replied.wait(0.05):
        if cancelled.is_set():
            return {"result": {"outcome": {"outcome": "cancelled"}}}
    return replies[number][1]


def run(session, number, command):
    call = f"call-{os.getpid()}-{number}"
    about = {"toolCallId": call, "title": "sh", "kind": "execute", "status": "pending", "rawInput": {"command": command}}
    update(session, "tool_call", **about)
    options = [
        {"optionId": "yes-once", "name": "Allow", "kind": "allow_once"},
        {"optionId": "yes-always", "name": "Always allow", "kind": "allow_always"},
        {"optionId": "no-once", "name": "Reject", "kind": "reject_once"},
    ]
    if "narrow" in offers:
        options = options[2:]
    if "always" in offers:
        options = options[:0:-1]
    reply = ask("session/request_permission", {"sessionId": session, "toolCall": about, "options": options})
    chosen = reply["result"]["outcome"].get("optionId", "cancelled")
    with open(os.path.join(state, "chosen"), "a") as file:
        file.write(chosen + "\n")
    if chosen.startswith("yes"):
        subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    update(session, "tool_call_update", toolCallId=call, status="completed" if chosen.startswith("yes") else "failed")


def call(model):
    texts = [{"role": "user", "content": "hello"}]
    if "GOOGLE_GEMINI_BASE_URL" in os.environ:
        path = f"{os.environ['GOOGLE_GEMINI_BASE_URL']}/v1beta/models/{model}:streamGenerateContent?alt=sse"
        key = {"x-goog-api-key": os.environ["GEMINI_API_KEY"]}
        tools = [{"functionDeclarations": [{"name": "sh", "parameters": {"type": "object"}}]}]
        body = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}], "tools": tools}
    else:
        path = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        key = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        tools = [{"type": "function", "function": {"name": "sh", "parameters": {"type": "object"}}}]
        usage = {"include_usage": True}
        body = {"model": model, "messages": texts, "tools": tools, "stream": True, "stream_options": usage}
    asked = urllib.request.Request(path, json.dumps(body).encode(), {"content-type": "application/json", **key})
    try:
        with urllib.request.urlopen(asked) as answer:
            answer.read()
            return "called"
    except urllib.error.HTTPError as error:
        return "refused with %d" % error.code


def turn(number, params):
    session, text = params["sessionId"], params["prompt"][0]["text"]
    with open(os.path.join(state, session), "a") as file:
        file.write(json.dumps(["user_message_chunk", text]) + "\n")
    for place, line in enumerate(text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "say":
            with open(os.path.join(state, session), "a") as file:
                file.write(json.dumps(["agent_message_chunk", rest]) + "\n")
            say(session, "agent_message_chunk", rest)
        elif word == "run":
            run(session, f"{number}-{place}", rest)
        elif word == "ask":
            reply = ask("fs/read_text_file", {"sessionId": session, "path": "/etc/hostname"}, "again")
            say(session, "agent_message_chunk", "refused: %s" % reply["error"]["code"])
        elif word == "form":
            schema = {"type": "object", "properties": json.loads(rest)}
            asks = {"sessionId": session, "mode": "form", "message": "Deploy where?", "requestedSchema": schema}
            say(session, "agent_message_chunk", json.dumps(ask("elicitation/create", asks)["result"], sort_keys=True))
        elif word == "call":
            say(session, "agent_message_chunk", call(rest))
        elif word == "wait":
            say(session, "agent_message_chunk", "working")
            cancelled.wait()
        elif word == "flood":
            for _ in range(int(rest)):
                sys.stderr.write("x" * (1 << 20))
            sys.stderr.flush()
        elif word == "die":
            say(session, "agent_message_chunk", "dying")
            os._exit(3)
        elif word == "leave":
            os._exit(0)
        elif word == "recall":
            with open(os.path.join(state, session)) as file:
                said = [json.loads(line)[1] for line in file]
            say(session, "agent_message_chunk", "users: %d" % len([each for each in said if "\n" in each or " " in each]))
    reason = "cancelled" if cancelled.is_set() else "end_turn"
    write({"id": number, "result": {"stopReason": reason}})


def handle(number, method, params):
    if method == "initialize":
        named = {name: {} for name in ("resume", "fork") if name in offers}
        able = {"loadSession": "load" in offers, "sessionCapabilities": named}
        version = 2 if "next" in offers else 1
        return {"result": {"protocolVersion": version, "agentCapabilities": able}}
    if method == "session/new" and "login" in offers:
        return {"error": {"code": -32000, "message": "Authentication required"}}
    if method in ("session/new", "session/fork"):
        session = "conversation-%d" % (len(os.listdir(state)) + os.getpid())
        before = open(os.path.join(state, params["sessionId"])).read() if method == "session/fork" else ""
        with open(os.path.join(state, session), "w") as file:
            file.write(before)
        return {"result": {"sessionId": session}}
    if method in ("session/load", "session/resume"):
        with open(os.path.join(state, params["sessionId"])) as file:
            for line in file if method == "session/load" else []:
                say(params["sessionId"], *json.loads(line))
        return {"result": None}
    return {"error": {"code": -32601, "message": "no such method"}}


for line in sys.stdin:
    message = json.loads(line)
    with open(os.path.join(state, "heard"), "a") as file:
        file.write(line)
    method, number = message.get("method"), message.get("id")
    if method == "session/prompt":
        cancelled.clear()
        threading.Thread(target=turn, args=(number, message["params"]), daemon=True).start()
    elif method == "session/cancel":
        cancelled.set()
    elif method is not None:
        write({"id": number, **handle(number, method, message["params"])})
    elif number in replies:
        replies[number][1] = message
        replies[number][0].set()
