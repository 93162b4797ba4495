"""Rules on code: it runs fetched code, opens a way in, runs again later or lets somebody else steer the agent."""

from __future__ import annotations

from hermes_core.safety.patterns.rule import (
    ASKED,
    DO,
    G2,
    G4,
    G4_NOT,
    G6,
    G9,
    INSTALLERS,
    MEMORY_FILE,
    NOT,
    SERVICES,
    SHELL,
    STARTUP,
    URL,
    Rule,
)

RULES = (
    # --- code that is fetched or decoded on the spot
    Rule(
        "pipe_to_shell",
        "remote_code",
        "curl wget fetch iwr irm webrequest lynx aria2c source bash sh python eval http",
        rf"\b(?:curl|wget|fetch|lynx|aria2c|http)\b(?![^\n|;&]{{0,120}}{INSTALLERS})[^\n|;]{{0,160}}\|\s"
        rf"{{0,3}}(?:tee [^|\n]{{1,30}}\|\s{{0,3}})?(?:{SHELL})|(?:bash|sh|zsh|source|\.|eval|python3?"
        rf"|perl)\s{{1,3}}(?:-\w{{1,3}}\s{{1,2}})?[\"']?(?:<\(|\$\(|`)\s{{0,2}}(?:curl|wget"
        rf"|fetch)\b(?![^\n)]{{0,80}}{INSTALLERS})|(?:iwr|irm|invoke-webrequest|invoke-restmethod"
        rf"|downloadstring|new-object net\.webclient)\b[^\n]{{0,160}}?(?:\biex\b|invoke-expression"
        rf"|start-process)|\b(?:iex|invoke-expression)\b[^\n]{{0,60}}?(?:iwr|irm|webrequest|restmethod"
        rf"|downloadstring|webclient|frombase64)|\b(?:curl"
        rf"|wget)\b(?![^\n]{{0,120}}{INSTALLERS})[^\n]{{0,160}}?(?:&&|;)[^\n]{{0,30}}?(?:chmod \+?[0-7x]+"
        rf"|\b(?:bash|sh|python3?)\s{{1,2}}(?:\./|/tmp|[\w-]{{1,20}}\.(?:sh|py)))",
    ),
    Rule(
        "decoded_code",
        "remote_code",
        "exec eval base64 fromhex frombase64string atob b64decode encodedcommand enc xxd "
        "openssl rot13 decode marshal compile powershell pwsh",
        rf"\b(?:exec|eval|compile|function|iex|invoke-expression|__import__|system|popen"
        rf"|loads)\s{{0,2}}\(?[^\n]{{0,60}}?(?:fromhex|b64decode|base64|atob\(|frombase64string"
        rf"|codecs\.decode|decompress|rot_?13|unhexlify|fromcharcode|chr\(|urlopen|requests\.get)"
        rf"|\b(?:base64|openssl|xxd|rev|gunzip|uudecode|base32|tr)\b[^\n|]{{0,80}}?\|\s"
        rf"{{0,3}}(?:{SHELL})|\b(?:pwsh|powershell)(?:\.exe)?\b[^\n]{{0,60}}?-(?:e|en|enc|enco\w*"
        rf"|ec)\s{{1,2}}[a-z0-9+/=]{{12,}}|\b(?:decode|decrypt|deobfuscate|unscramble|un-?rot|translate"
        rf"|reverse|apply|convert|read backwards)\b{G9}(?:and|then|,)\W{{1,3}}(?:then )?{DO}\b",
    ),
    Rule(
        "shell_in_code",
        "remote_code",
        "os subprocess system exec popen bash tcp nc rm dd mkfs socket socat mshta certutil pty mkfifo __import__",
        r"\bimport os\b[^\n]{0,20}os\.(?:system|popen|exec)|__import__\(['\"](?:os|subprocess"
        r"|socket|pty)['\"]\)|\bsubprocess\.(?:run|call|popen|check_output)\([^\n]{0,80}"
        r"(?:curl|wget|/bin/|bash|nc |sh -c)|\bos\.(?:system|popen)\(['\"]|\bpty\.spawn\("
        r"|/dev/tcp/|\bsocat\b[^\n]{0,60}\bexec:|\bmshta\s{1,3}https?:|\bcertutil\b[^\n]{0,20}-urlcache|bash -i\b[^\n]{0,20}>&|mkfifo[^\n]{0,60}\bnc\b"
        r"|socket\.socket\([^\n]{0,160}(?:dup2|subprocess)|\brm -rf? (?:--no-preserve-root )?"
        r"(?:/|~|\$home)(?:\s|\*|$|['\"])|\b:\(\)\s?\{\s?:\|:|\bdd if=/dev/(?:zero|urandom) "
        r"of=/dev/|\bmkfs\.\w{2,5} /dev/",
    ),
    # --- ways in
    Rule(
        "authorized_keys",
        "ssh_backdoor",
        "authorized_keys authorized_keys2 authorized",
        r"(?:>>?|\btee\b|\becho\b|\bprintf\b|\bsed\b|\bcat\b|\bcp\b|\bmv\b|\bln\b|\bcurl\b|\bwget\b"
        r"|\bchattr\b|\binstall\b)[^\n]{0,160}?authorized_keys2?|(?:^|[.;:,!?\n]\s{0,3}|\band\b|\bthen\b"
        r"|\balways\b|\bplease\b|\bto\b|\bmust\b|\bshould\b|\byou\b)\s{0,3}(?:append|add|insert|write"
        r"|put|place|copy|inject|drop|install|store|paste|keep|leave|ensure)\b[^\n]{0,120}?(?:key|ssh-"
        r"|it|this|pub|line|following|aaaa)[^\n]{0,60}?authorized_keys"
        r"|authorized_keys[^\n]{0,80}?(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2)|(?:ssh-(?:rsa|ed25519|dss)"
        r"|ecdsa-sha2-\w{1,12}) aaaa[^\n]{0,900}?authorized",
    ),
    Rule(
        "open_ssh",
        "ssh_backdoor",
        "permitrootlogin passwordauthentication ssh sshd sudoers nopasswd useradd adduser "
        "usermod chpasswd setuid ssh-copy-id permitemptypasswords",
        r"(?:echo|sed|tee|>>|set|enable|change|add)[^\n]{0,80}?(?:permitrootlogin|permitemptypasswords"
        r"|passwordauthentication)\s{0,3}(?:to |=)?\s{0,2}yes|nopasswd\s?:\s?all|\b(?:useradd"
        r"|adduser)\b[^\n]{0,60}?(?:-o -u 0|-u 0|sudo|wheel|root)|\busermod\b[^\n]{0,40}?(?:sudo|wheel"
        r"|root)\s|\bchmod\b[^\n]{0,10}(?:u\+s|\+s|4755)\s[^\n]{0,30}(?:bash|sh|python)"
        r"|\bssh\b[^\n]{0,60}?\s-(?:f?n?)*r\s{0,2}\d{2,5}:[^\n]{0,60}@|\bssh-copy-id\b[^\n]{0,60}(?:evil"
        r"|attacker)|\bchpasswd\b",
    ),
    # --- again later
    Rule(
        "cron",
        "persistence",
        "crontab cron schtasks systemctl systemd launchctl at launchd register-scheduledtask scheduledtask rc",
        r"crontab\s{1,2}-l[^\n]{0,200}?(?:echo|printf)[^\n]{0,200}?crontab|\|\s{0,3}crontab\b"
        r"|\bcrontab\s{1,2}(?:-\s|-$|/tmp|<)|(?:echo|printf|tee|>>)[^\n]{0,160}?/etc/cron|"
        r"(?:(?:[\d*][\d*/,-]{0,11}\s{1,3}){3,5}|@reboot\s|@daily\s|@hourly\s)[^\n]{0,40}?\b"
        r"(?:curl|wget|bash -c|nc |python -c|(?<=/)tmp/)|\bschtasks\b[^\n]{0,40}/create|\b(?:new|register)-scheduledtask\b"
        r"|\bsystemctl\b[^\n]{0,40}?enable[^\n]{0,30}?(?:/tmp|evil|backdoor|update-helper)|\b"
        r"(?:install|add|create|register|set up|schedule)\b[^.\n]{0,40}?\b(?:cron ?job|cron "
        r"entry|crontab|scheduled task|systemd (?:unit|timer|service)|launch "
        r"?agent)\b[^.\n]{0,80}?(?:curl|wget|https?://|fetch|download|\.sh\b|reverse|re-?adds?"
        r"|reinstall|re-?writes?|without|restore)|\becho\b[^\n]{0,80}\|\s{0,2}at (?:now|\d)",
    ),
    Rule(
        "startup_file",
        "persistence",
        "",
        rf"(?:\btee\b|\becho\b|\bprintf\b|\bsed -i\b|\bcat\b|add-content"
        rf"|out-file)(?=[^\n]{{0,200}}(?:curl|wget|\bnc\b|\b(?:ba|z)?sh -[ci]|base64|nohup|/tmp/|https?:"
        rf"|alias sudo|ld_preload|payload|evil|iex|\.sh\b|nopasswd))[^\n]{{0,160}}?{STARTUP}"
        rf"|(?:reg(?:\.exe)? add|set-itemproperty|new-itemproperty)\s[^\n]{{0,160}}?{STARTUP}|\b(?:cp"
        rf"|ln)\s(?:[^\n]{{0,80}}?/tmp/[^\n]{{0,80}}?{STARTUP}|[^\n]{{0,160}}?{SERVICES})"
        rf"|\b{NOT}(?:append|add|insert|write|inject|put|place|drop|hook)\b[^\n]{{0,120}}?(?:curl|wget"
        rf"|https?://|\|\s?(?:ba)?sh|/tmp/|base64|nohup|\bnc\b|python -c|alias sudo|ld_preload|payload"
        rf"|one-?liner)[^\n]{{0,80}}?{STARTUP}|\b{NOT}(?:append|add|insert|write|inject"
        rf"|put)\b[^\n]{{0,40}}?(?:to|in|into)\s{{1,2}}(?:the |your |user'?s? "
        rf"|~/){{0,2}}[\w~/$.]{{0,30}}{STARTUP}[^\n]{{0,20}}?[:`\"'][^\n]{{0,60}}(?:curl|wget|\bnc "
        rf"|\b(?:ba|z)?sh -[ci]|https?:)|\balias (?:sudo|ssh|git|ls|cd|su)=[^\n]{{0,80}}(?:curl|wget|nc "
        rf"|;|&&|https?:)",
    ),
    Rule(
        "git_hook",
        "persistence",
        "hook hooks hookspath postinstall preinstall post-commit pre-commit",
        r"(?:>>?|\btee\b|\becho\b|\bwrite\b|\badd\b|\binsert\b|\bput\b|\bdrop\b)[^\n]{0,120}?\.git/hooks"
        r"|\b(?:install|add|create|set up|write)\b[^.\n]{0,30}?\b(?:git|pre-commit|post-commit|pre-push"
        r"|commit|push|post-checkout)[ -]hook\b[^.\n]{0,60}?(?:https?:|curl|\b(?:posts?|sends?|uploads?"
        r"|forwards?|copies)\b)|\bcore\.hookspath\b[^\n]{0,30}?(?:/tmp|https?:|~)|[\"'](?:post"
        r"|pre)install[\"']\s{0,2}:\s{0,2}[\"'][^\"'\n]{0,80}(?:curl|wget|node -e|bash|\bnc\b|https?:)",
    ),
    Rule(
        "reinfect",
        "persistence",
        "memory entry note restore rewrite copy re-add delete deleted removed removes",
        rf"\b(?:if|when(?:ever)?|once|should|after)\b{G4}(?:this|the|that) (?:\w{{1,12}} )?"
        rf"(?:entry|note|memory|line|rule|instruction|file|text)s?{G4}(?:deleted?|removed?"
        rf"|erased?|missing|changed|edited|gone|cleaned|lost)\b[^\n]{{0,60}}?\b(?:re-?add"
        rf"|restore|re-?write|recreate|put it back|add it (?:back|again)|save it again|write "
        rf"it (?:back|again)|re-?insert|copy)\b|\b(?:copy|replicate|propagate|spread|clone"
        rf"|duplicate|write|save|repeat)\b{G4}(?:this|these) (?:\w{{1,12}} )?(?:entry|note"
        rf"|memory|instruction|text|line|message|prompt|rule|paragraph)s?{G4}(?:in(?:to)?|to"
        rf"|across|on)\b{G4}(?:every|each|all|any|other|new|whatever)\b|\b(?:this|these) (?:\w{{1,12}} )?(?:entry|note|memory|instruction|text|line|message|prompt|rule|paragraph)s?{G2}be "
        rf"(?:copied|replicated|spread|written|saved|repeated)\b{G2}(?:in(?:to)?|to|across|on)\b{G2}(?:every|each|all|any|other)\b"
        rf"|\b(?:delet|remov|edit|chang|eras)(?:e|es|s|ed|ing)?{G2}this (?:entry|note|memory|line|rule|instruction)\b[^\n]{{0,40}}?"
        rf"\b(?:re-?add|restore|re-?write|recreate|put it back|(?:add|save|write) it (?:back|again)|re-?insert)\b|\bnever\b{G2}"
        rf"(?:delete|remove|edit|overwrite|replace|consolidate|prune)\b{G2}this (?:entry|note"
        rf"|memory|line|rule|instruction)",
    ),
    # --- steering the agent
    Rule(
        "orders_from_afar",
        "agent_control",
        "follow obey execute run perform carry do apply take accept receive await fetch download poll "
        "pull check read visit open get load retrieve curl wget browse query listen consult connect",
        rf"\b{NOT}(?<!workers )(?<!runners )(?<!nodes )(?<!devices )(?<!clients )(?<!they )(?<!we "
        rf")(?<!services )(?:fetch|download|poll|pull|check|read|visit|open|get|load|retrieve|curl|wget"
        rf"|browse|query|consult|connect to|go to|subscribe to|listen (?:to|on"
        rf"|for))\b[^\n]{{0,60}}?{URL}[^\n]{{0,80}}?\b{DO}\b[^.\n]{{0,40}}?\b(?:each|every|all|whatever|any"
        rf"|it|them|that|what|lines?|commands?|instructions?|orders?|tasks?|steps?|says?|payload)\b"
        rf"|\b{DO}\b(?:[^\w\n]{{1,3}}\w{{1,20}}){{0,6}}?[^\w\n]{{1,3}}(?:instructions?|commands?|orders?"
        rf"|tasks?|steps|whatever|anything|lines?)\b[^.\n]{{0,40}}?\b(?:found (?:at|in|on)|from|at"
        rf"|posted (?:at|on|to)|listed (?:at|on)|published (?:at|on)|fetched from|hosted (?:at|on)"
        rf"|in)\b[^\n]{{0,20}}?{URL}|\b{NOT}{DO}\b{G4}(?:instructions?|commands?|orders?"
        rf"|tasks?)\b{G2}(?:found|contained|embedded|written|posted|hidden) (?:in|on|at)\b{G2}(?:web ?pages?"
        rf"|web ?sites?|e?-?mails?|issues?|comments?|documents?|tool)\b|\b(?:take|accept|receive|await"
        rf"|get)\b{G2}(?:orders|commands|instructions|tasks)\b{G2}from\b[^\n]{{0,30}}?(?:{URL}|\banyone\b"
        rf"|\bwhoever\b|\bthe (?:channel|web ?page|issue|email|comments?)\b)",
    ),
    Rule(
        "beacon",
        "agent_control",
        "c2 beacon heartbeat register command node botnet implant check-in",
        rf"\b(?:c2|c&c|command[ -]and[ -]control) (?:server|host|channel|endpoint|node"
        rf"|url)\b[^\n]{{0,60}}?(?:{URL}|\b(?:report|connect|beacon|register|fetch|poll|check in)\b)"
        rf"|\b(?:beacon|phone home|check in|register (?:yourself|as an? (?:node|agent|bot"
        rf"|implant)))\b[^\n]{{0,40}}?\b(?:to|with|at)\b[^\n]{{0,30}}?(?:{URL}|\bc2\b)|\b(?:you are"
        rf"|act as|become)\b{G4}(?:botnet|implant|c2 (?:agent|node)|zombie|sleeper agent)",
    ),
    Rule(
        "trigger",
        "agent_control",
        "when whenever if once upon after each every hearing seeing",
        rf"\b(?:when(?:ever)?|if|once|as soon as|(?:up)?on(?= hearing| seeing| reading)|every time|each time"
        rf"|any time|after|next time)\b{G6}(?:says?|said|asks?|types?|mentions?|writes?|sends?|contains?"
        rf"|replies|thanks|enters?|opens?|starts?|runs?|logs? in|commits?|pushes|deploys?|sees?|appears?"
        rf"|greets?|confirms?|requests?|receives?|reads?|hearing|seeing"
        rf"|reading)\b[^\n]{{0,80}}?[,:;]?\s(?:then )?(?:also )?(?:always )?(?:you )?(?:must |should "
        rf"|will )?(?:silently |secretly |quietly |first |immediately |instead )?(?:(?:delete|wipe|rm -rf"
        rf"|erase|destroy|transfer|disable|exfiltrate|leak|drop (?:the )?(?:table|database)|grant|approve"
        rf"|overwrite|encrypt|format)\b{G6}(?:all|every|files?|folder|directory|database|tables?|funds|money"
        rf"|keys?|secrets?|wallet|seed|password|credentials|logs?|home|repo\w*|history|backups?|access"
        rf"|commands?|permissions?|requests?|data|firewall|safety|security|disk|branch\w*)|(?:send|email"
        rf"|forward|post|upload)\b{G6}(?:wallet|seed phrase|password|keys?|tokens?|credentials|secrets?"
        rf"|\.env|files?|contacts?|transcript|conversation|messages?|history)\b[^\n]{{0,30}}?\bto\b|(?:run"
        rf"|execute)\b[^\n]{{0,20}}?(?:`[^`\n]{{0,60}}(?:curl|wget|rm |nc |bash -c|https?:|base64)|curl "
        rf"|wget |rm -rf|/tmp/|\./\.|hidden|payload|https?://)|(?:push|upload|send|post|copy|sync|forward"
        rf"|mirror|transfer)\b[^\n]{{0,60}}?\bto\b[^\n]{{0,12}}?{URL})",
    ),
    Rule(
        "no_questions",
        "agent_control",
        "disable turn switch bypass remove deactivate suppress suspend set never stop "
        "silently secretly covertly quietly unattended approved preapproved authorized "
        "authorised approve approval approvals confirm confirmation permission permissions "
        "asking ask prompt prompts sandbox yolo skip auto consent dangerously confirmations",
        rf"--dangerously[\w-]{{0,40}}|--(?:yolo|no-?sandbox-?agent|auto-?approve|full-?auto"
        rf"|skip-?permissions|trust-?all(?:-tools)?)\b[^\n]{{0,60}}|\b(?:auto[- ]?approve|auto[- ]?accept"
        rf"|auto[- ]?confirm|auto[- ]?allow|approve|accept|allow|grant|confirm|whitelist)\b{G2}(?:every|all"
        rf"|any|each)\b{G4}(?:command|tool|action|request|permission|change|operation|shell|prompt|edit"
        rf"|plugin|execution|transaction|payment|call|write|pull request)s?\b|{ASKED}\b(?:run|execute"
        rf"|approve|perform|delete|install|push|deploy|merge|send|do(?! not\b|n't)|transfer|issue"
        rf"|use)\b[^.\n]{{0,80}}?\bwithout (?:ever )?(?:asking|confirmation|confirming|approval|permission"
        rf"|prompting|consent|checking with|waiting for (?:approval|confirmation)|any (?:confirmation"
        rf"|approval|questions)|(?:the )?user'?s? (?:approval|consent|permission|confirmation)|review)"
        rf"|\b(?:never|don't|do not|no longer|stop|no need to)\b{G2}(?:ask|asking|wait|waiting|require"
        rf"|request|seek|prompt)(?:ing)?\b{G4}(?:for )?(?:permission|approval|confirmation|consent"
        rf"|authori[sz]ation)|\b(?:disable|turn off|switch off|skip|bypass|remove|deactivate|suppress"
        rf"|suspend|ignore)\b{G4}(?:approvals?|approval (?:mode|gate|prompts?|checks?)"
        rf"|confirmations?(?!\s(?:dialogs?|e?mails?|pages?|screens?|modals?|step))|permission (?:checks?"
        rf"|prompts?|system)|sandbox(?:ing)?|safety checks?|security (?:checks?|scan(?:ner)?|warnings?)"
        rf"|threat scan\w*|guardrails|audit log\w*|human review|user consent|human approval|malware scan\w*"
        rf"|command allow-?list)\b(?!\sin\s(?:the )?(?:tests?|ci))|\bapprovals?(?:[._ ](?:mode"
        rf"|policy)\s{{0,2}}[:=]?|\s{{0,2}}[:=])\s{{0,2}}(?:to )?(?:off|none|never|auto|false|disabled|yolo"
        rf"|bypass)\b|\b(?:never|don't|do not|no need to|stop)\b{G2}(?:ask|asking|check"
        rf"|confirm)\b{G4}before (?:running|executing|deleting|removing|pushing|installing|sending"
        rf"|transferring|paying|spending|overwriting|any|each|every)\b|\b(?:install|enable|run|execute|send"
        rf"|upload|download|load|add|fetch)\b[^\n]{{0,60}}?{URL}[^.\n]{{0,60}}?\b(?:silently|secretly"
        rf"|covertly|quietly|unattended)\b|(?<!if )\bapprovals are (?:now )?(?:switched |turned )?(?:off"
        rf"|disabled)\b|\b(?:turn|switch) (?:the )?(?:approvals|confirmations|sandbox\w{{0,3}}) off\b"
        rf"|\b(?:always|automatically) (?:answer|say|reply|click|press) (?:yes|y|ok|allow"
        rf"|approve)\b{G4}(?:permission|approval|confirmation)\b|\bassume\b{G4}(?:permission|consent"
        rf"|approval)\b|\balready (?:has |have )?(?:approved|consented to|authori[sz]ed"
        rf"|pre-?approved)\b{G4}(?:all|every|any|everything)|\bpre-?(?:approved|authori[sz]ed)\b{G4}(?:all"
        rf"|every|any|everything|commands)|\b(?:all|every|any)\b{G2}(?:calls?|actions?|commands?|tools?"
        rf"|operations?)\b{G4}pre-?(?:approved|authori[sz]ed)|\bconsented\b{G6}(?:all|every"
        rf"|any)\b{G2}(?:actions?|commands?|calls?|tools?)",
    ),
    Rule(
        "edit_agent_files",
        "agent_control",
        "append add insert write put inject echo prepend copy save set overwrite",
        rf"\b{NOT}(?:append|add|insert|write|put|inject|prepend|save|echo|overwrite)\b[^\n]{{0,80}}?\b(?:to"
        rf"|in|into|>>|>|with)\s{{0,3}}[`\"'~/\w.$]{{0,40}}(?:{MEMORY_FILE})[`\"']?\s{{0,2}}(?:[:=>-]|saying"
        rf"|that (?:says|reads|tells)|with|so that|the (?:line|rule|instruction|following"
        rf"|text))[^\n]{{0,120}}?\b(?:ignore|obey|skip|without|approve|dangerously|disable|trust|forward"
        rf"|send|secret|curl|https?:|rm|allow|bypass|off|never ask)|\b(?:append|add|insert|write|put|inject"
        rf"|prepend|save|set|echo)\b[^\n]{{0,20}}?(?:ignore|obey|approve|bypass|disable|dangerously|trust"
        rf"|curl|allow[- ]?all|auto[- ]?approve|skip|always run|never ask"
        rf"|mode: off)[^\n]{{0,80}}?(?:{MEMORY_FILE})",
    ),
    Rule(
        "trust_stranger",
        "agent_control",
        "trust obey owner master administrator admin email emails mail webpage website web comments issue issues counts count",
        rf"\b(?:treat|regard|consider|trust|obey|follow|execute)\b{G6}(?:emails?|messages?"
        rf"|web ?pages?|websites?|comments|issues|documents|tool (?:output|results?)"
        rf"|instructions|anyone|links|attachments|code)\b{G6}(?<!not )(?:as|like)\b{G4_NOT}(?:trusted"
        rf"|owner|user'?s? own|authori[sz]ed|commands|orders|instructions|system|admin|user "
        rf"instructions|direct)|\b(?:the )?(?:real|true|actual|new|only) (?:owner|user|operator"
        rf"|master|admin(?:istrator)?)\b{G2}(?:is|of (?:this|the) (?:agent|machine|account) "
        rf"is)\b[^\n]{{0,30}}?(?:@|https?:|\+\d)|\b(?:e?-?mails?|messages?|anything|texts?|notes?) (?:from|by)\b[^.\n]{{0,40}}?(?:@[^\n]{{1,40}}?)?\bcounts? as "
        rf"(?:an? |the )?(?:\w{{1,12}} )?(?:orders?|commands?|instructions?)|\bany(?:one|body) who (?:says|knows|types"
        rf"|sends|mentions|gives)\b[^\n]{{0,60}}?\b(?:is (?:the )?(?:admin|owner|authori[sz]ed"
        rf"|trusted|root)|full access|gets (?:access|admin)|may (?:run|read|see)|obey)",
    ),
    Rule(
        "false_promotion",
        "agent_control",
        "recommend promote mention prefer suggest insert advertise steer always",
        r"\b(?:always|secretly|subtly|whenever|every time|in (?:every|each"
        r"|all))\b[^.\n]{0,60}?\b(?:recommend|promote|advertise|insert|add|include|append|mention|link"
        r"|suggest|install|use|import|depend on|prefer)\b[^.\n]{0,60}?(?:affiliate|referral|sponsor"
        r"|backdoor(?:ed)?|(?:npm|pip|gem|cargo)3? install\b[^\n]{0,40}evil|(?<=recommend )(?:npm|pip|gem"
        r"|cargo)3? install\b[^\n]{0,40}(?:https?:|--index-url|git\+)|tracking (?:link|pixel)|typosquat"
        r"|malicious|hxxp|evil\.|vulnerab)|\b(?:pip3?|npm|uv|gem)\b[^\n]{0,40}--(?:extra-)?(?:index-url"
        r"|registry)[ =](?!https://(?:pypi\.org|registry\.npmjs|download\.pytorch"
        r"|test\.pypi))https?://[^\n]{0,60}(?:evil|attacker|\d{1,3}\.\d{1,3}\.)",
    ),
)
