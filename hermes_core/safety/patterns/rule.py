"""Type of a threat rule, the categories of rules, and the fragments that patterns are made of.

Fragments named `*_NEEDS` are word lists for `Rule.needs`.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """Pattern of the threat scan.

    `needs` are words separated by spaces; `pattern` is tried only if one of them stands in the text ("" tries it
    always). `view` names the reading of the text that `pattern` is tried on: "plain" is lower case without disguise,
    "visible" keeps the script of the text, "unlatin" is "visible" if it holds more than ASCII, "letters" holds nothing
    but the letters.
    """

    id: str
    category: str
    needs: str
    pattern: str
    view: str = "plain"


CATEGORIES = {  # what a text of the category does, as the end of a sentence
    "invisible_unicode": "holds invisible characters that can hide instructions",
    "prompt_injection": "tells the agent to disregard its instructions",
    "role_hijack": "gives the agent another role or lifts its limits",
    "role_markup": "imitates the markup of a conversation or of a system message",
    "deception": "tells the agent to hide something from the person",
    "system_override": "claims authority over the system prompt",
    "prompt_leak": "asks for the agent's own instructions",
    "exfiltration": "sends secrets or private data elsewhere",
    "remote_code": "runs code that is fetched or decoded on the spot",
    "secret_read": "reads a file of secrets",
    "secret_path": "names a file that holds the agent's own secrets",
    "ssh_backdoor": "opens a way in over SSH",
    "persistence": "makes code run again later or at every login",
    "agent_control": "lets somebody else steer the agent or switch its safeguards off",
    "hidden_markup": "hides text for the agent in markup that a person doesn't see",
}


def _gap(words: int) -> str:
    """Return a pattern for at most `words` words between two parts of one sentence."""
    return rf"(?:[^\w.!?;\n]{{1,4}}\w{{1,30}}){{0,{words}}}?[^\w.!?;\n]{{1,4}}"


G2, G4, G6, G9 = _gap(2), _gap(4), _gap(6), _gap(9)
G4_NOT = r"(?:[^\w.!?;,\n]{1,4}(?!not\b|never\b)\w{1,30}){0,4}?[^\w.!?;,\n]{1,4}"
ASKED = (  # from the beginning of a sentence, with nothing that forbids
    r"(?:^|[.:!?;]|\n\s{0,8}(?:[-*+#>|]|\d{1,2}\)|\n))(?:(?!\b(?:never|not|no|nobody|nothing|none|nor|cannot|avoid|refuse|forbid|forbidden"
    r"|prohibited)\b|n't\b)[^.:!?;]){0,160}?"
)

NOT = r"(?<!not\s)(?<!never\s)(?<!n't\s)(?<!cannot\s)(?<!avoid\s)"
DROP = (
    r"(?:ignore|disregard|overlook|forget|discard|dismiss|neglect|override|overrule|bypass|abandon|cancel"
    r"|void|drop|erase|unlearn|set aside|put aside|throw (?:out|away)|toss out|pay no attention to"
    r"|give no weight to|do not (?:follow|obey|heed)|don't (?:follow|obey|heed)|stop (?:following|obeying"
    r"|heeding)|no longer (?:follow|obey)|leave behind|wipe)"
)
DROP_NEEDS = (
    "ignore disregard overlook forget discard dismiss neglect override overrule bypass abandon cancel void "
    "drop erase unlearn aside throw toss attention weight follow obey heed stop longer behind wipe"
)
NO_STOCK = r"(?!(?:drop|cancel|void|wipe)\b[^.!?\n]{0,60}?\b(?:orders|constraints?|limits?)\b|override\b[^.!?\n]{0,30}?\bdefault\b)"
"""Not of goods and databases: "cancel the previous orders", "drop the current constraints"."""
ORDERS = (
    r"(?:instructions?|directions?|directives?|guidelines?|guidance|rules?|commands?|orders|prompts?"
    r"|polic(?:y|ies)|constraints?|restrictions?|safeguards?|guardrails?|programming|training|limits?"
    r"|limitations?|boundaries|principles|briefing|system message)"
)
BEFORE = (
    r"(?:previous|prior|preceding|earlier|above|foregoing|former|past|original|initial|existing|current|old"
    r"|system|developer|safety|aforementioned|standing|built-?in|core|default)"
)
GIVER = (
    r"(?:developers?|system|operators?|vendor|creators?|makers?|openai|anthropic|admin"
    r"(?:istrator)?s?|owner|company|platform|host)"
)
PERSON = (  # several only with an article: "hide the menu from users" is how programs are spoken of
    r"(?:(?:the |your |any |this |our |these |that )(?:human |end )?(?:users|humans|operators|people|supervisors"
    r"|reviewers|auditors|developers|admins|administrators)\b|(?:the |your |any |this |our |that )?(?:human |end )?"
    r"(?:user|human|operator|person|owner|boss|someone|anyone|anybody|supervisor|reviewer|auditor|developer|admin"
    r"|administrator|person you|whoever)\b)"
)
URL = (
    r"(?:https?://|ftp://|wss?://|\b(?:\d{1,3}\.){3}\d{1,3}\b|\b[\w.+-]{1,60}@[\w-]{1,60}\.\w"
    r"|\b[\w-]{1,40}\.(?:example|evil|ru|cn|tk|xyz|top|io|com|net|org|me|sh|cc)\b|\b(?:remote|external|our"
    r"|my|their|attacker'?s?) (?:server|host|endpoint|webhook|bucket)\b|\bwebhook\b|\bpastebin\b"
    r"|\b(?:public |github )?gist\b|\bpublic (?:bucket|channel|repo|issue|paste)\b|\bdiscord webhook\b"
    r"|\btelegram bot\b)"
)
SECRETS = (
    r"(?:credentials?|secrets?|passwords?|passphrases?|api[ _-]?keys?|keys|tokens?|private keys?|ssh keys?"
    r"|cookies?|environ(?:ment)?(?: variables?)?|env(?: vars?| variables?|(?= (?:to|at|via|through|into"
    r"|over)\b))|\.env|seed phrase|mnemonic|recovery phrase|wallet|keychain|key ?store"
    r"|auth(?:entication)? data|session ids?|2fa codes?|otps?|credit cards?|card numbers?|\.ssh|id_rsa|\.aws)"
)
PRIVATE = (
    r"(?:conversations?|transcripts?|chat(?:s| history| logs?)?|message history|(?:all|every|user|private"
    r"|chat|direct|past) messages?|history|memor(?:y|ies)|contents?(?: of)?|source code|code ?base"
    r"|repo(?:sitory)?|home (?:folder|dir(?:ectory)?)|project (?:folder|files|dir(?:ectory)?)|documents"
    r"|files|database|dump|clipboard|screenshots?|contacts?|address book|emails?|mailbox|inbox"
    r"|browser (?:data|history|profile)|system prompt|context|dialogue|everything|personal (?:data"
    r"|information|details)|user(?:'s)? (?:data|details|profile|messages?))"
)
SEND = (
    r"(?:send|post|upload|forward|transmit|exfiltrate|e?mail|mail|leak|copy|sync|push|ship"
    r"|deliver|submit|report|relay|mirror|stream|beam|transfer|dump|publish|share|smuggle"
    r"|append|attach|encode|bcc|cc|text|message|put)"
)
SEND_NEEDS = (
    "send post upload forward transmit exfiltrate email mail leak copy sync push ship "
    "deliver submit report relay mirror stream beam transfer dump publish share smuggle "
    "append attach encode bcc cc text message put sends posts uploads forwards"
)
SECRET_FILE = (
    r"(?:(?:[\w.~$/{}*-]{0,80}/)?\.env(?!\.(?:example|sample|template|dist|test|ci|defaults?|schema|tpl)"
    r"|[\w-])(?:\.\w{1,20})?|[\w.~$%/\\{}*-]{0,80}(?:/\.ssh/(?!config\b|known_hosts|authorized_keys"
    r"|\S{0,40}\.pub\b)\S{0,40}|id_(?:rsa|dsa|ecdsa|ed25519)(?!\.pub)\b|\.aws[/\\]credentials|\.netrc"
    r"|\.pgpass|\.npmrc|\.pypirc|\.git-credentials|\.gnupg|\.kube/config|\.docker/config\.json|/etc/shadow"
    r"|/etc/passwd|\.hermes/(?:\.env|auth|credentials)|credentials\.json|secrets?\.(?:ya?ml|json|toml|env)"
    r"|\.vault-token|wallet\.dat|login data|cookies\.sqlite|\.config/gcloud|keychain-db|\.bash_history"
    r"|\.zsh_history|/proc/self/environ))"
)
FETCH = r"(?:curl|wget|fetch|iwr|irm|invoke-webrequest|invoke-restmethod|http|https|aria2c|lynx)"
SHELL = (
    r"(?:sudo |env |/usr|/bin|/local){0,4}/?(?:ba|z|da|k|c|fi)?sh\b|(?:sudo )?(?:python[\d.]*|perl|ruby|node"
    r"|php|iex|invoke-expression|pwsh|powershell|osascript)\b(?!\s{1,9}-\w{0,4}[mcenp]\b)"
)
INSTALLERS = (
    r"(?:sh\.rustup\.rs|get\.docker\.com|install\.python-poetry\.org|astral\.sh"
    r"|raw\.githubusercontent\.com/(?:homebrew|nvm-sh|ohmyzsh|pyenv|asdf-vm)|bun\.sh|deno\.land|get\.k3s\.io"
    r"|get\.sdkman\.io|get\.helm\.sh|deb\.nodesource\.com|rpm\.nodesource\.com|get\.pnpm\.io|starship\.rs"
    r"|mise\.run|install\.duckdb\.org|fnm\.vercel\.app|pyenv\.run|nixos\.org|sh\.brew\.sh|tailscale\.com"
    r"|ollama\.com|cli\.github\.com|get\.volta\.sh|foundry\.paradigm\.xyz|install\.determinate\.systems"
    r"|bootstrap\.pypa\.io)"
)
MEMORY_FILE = (
    r"(?:claude|agents|soul|memory|user|gemini|copilot-instructions|skill|heartbeat|tools|identity)\.md"
    r"|\.cursorrules|\.windsurfrules|\.clinerules|config\.ya?ml|settings\.json|system prompt|mcp\.json"
)
STARTUP = (
    r"(?:\.(?:bash|zsh)rc|\.(?:bash_|z)?profile|\.bash_login|\.zshenv|\.bash_logout|/etc/profile(?:\.d)?"
    r"|rc\.local|config\.fish|/etc/cron|/etc/init\.d|/etc/systemd|\.config/(?:autostart|systemd)"
    r"|launchagents|launchdaemons|\$profile|/etc/ld\.so\.preload|\.git/hooks|\.vimrc|sitecustomize\.py"
    r"|usercustomize\.py|start(?:up)? ?(?:menu|folder)\b|currentversion\\{1,2}run|shell:startup|/etc/sudoers)"
)
SERVICES = (
    r"(?:\.config/(?:autostart|systemd)|launchagents|launchdaemons|/etc/(?:cron|init\.d|systemd)|\.git/hooks)"
)
AGENT = r"(?:assistant|ai|agent|bot|model|llm|system|chatbot|copilot|hermes|claude|gpt)"
DO = r"(?:execute|carry out|obey|follow|run|perform|do|act on|apply|comply with|implement|eval(?:uate)?)"
