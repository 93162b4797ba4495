"""Rules on leaks: text that sends secrets or private data elsewhere, or reads files of secrets."""

from __future__ import annotations

from hermes_core.safety.patterns.rule import (
    FETCH,
    G4,
    G6,
    G9,
    NOT,
    PRIVATE,
    SECRET_FILE,
    SECRETS,
    SEND,
    SEND_NEEDS,
    URL,
    Rule,
)

RULES = (
    # --- sending secrets and private data elsewhere
    Rule(
        "curl_secret",
        "exfiltration",
        "curl wget fetch http https iwr irm webrequest restmethod nc ncat netcat socat telnet ping dig "
        "nslookup host scp rsync sftp ftp rclone s3 gsutil azcopy tftp mail sendmail mutt openssl aws",
        rf"\b(?:{FETCH}|nc|ncat|netcat|socat|telnet|ping|dig|nslookup|host|scp|rsync|sftp|ftp"
        rf"|rclone|gsutil|azcopy|tftp|mail|sendmail|mutt|openssl|aws s3 cp|aws s3 "
        rf"sync)\b[^\n]{{0,200}}?(?:(?<!bearer )(?<!token )(?<!basic )(?<!-key: )(?<!-token: )"
        rf"(?<!-u )\$\{{?\w{{0,30}}(?:key|token|secret|passw(?:or)?d|credential|auth|_pat"
        rf"|api)\w{{0,20}}\}}?|\$\((?:cat|env|printenv|base64|head|whoami|tar|xxd|id|hostname"
        rf"|git|history|find|grep|gpg|ls)\b|(?:(?<=[/=.?&@:_\"'-])`|`(?=[^`\n]{{1,40}}`\.\w))(?:cat|env|printenv|base64|head|whoami|tar"
        rf"|xxd|id|hostname)\b|(?:<|@|file=@|-t |--post-file[= ]|--upload-file |-T |-d @|--data[-\w]* "
        rf"?@)\s{{0,2}}{SECRET_FILE}|(?<!-i)\s{SECRET_FILE}\s{{1,3}}\S{{1,60}}(?:@|:|://))",
    ),
    Rule(
        "curl_file",
        "exfiltration",
        "curl wget nc ncat netcat httpie mail sendmail socat telnet ssh http openssl",
        r"\bcurl\b[^\n|]{0,120}?(?:-f|--form|-d|--data(?:-\w{1,10})?|-t"
        r"|--upload-file)[ =]{0,2}['\"]?(?:\w{0,20}=)?[@<]?(?!-)[~/$.\w][^\n]{0,80}?(?<!localhost)(?:http"
        r"s?://|\w\.\w)[^\n]{0,80}(?:exfil|evil|attacker|collect|loot|drop|steal|webhook\.site"
        r"|requestbin|pipedream|ngrok|burpcollaborator|interact\.sh|oast)|\bcurl\b[^\n|]{0,160}?(?:-f"
        r"|--form|-d|--data(?:-\w{1,10})?|-t|--upload-file)[ =]{0,2}['\"]?(?:\w{0,20}=)?@\s?[\"']?(?:~|/"
        r"|\$home|\.env|\.\.?/\.)(?![^\n]{0,160}(?:localhost|127\.0\.0\.1))|\bcurl\b[^\n|]{0,60}?(?:-t"
        r"|--upload-file)\s{1,2}[\"']?(?:\{\}|~|/|\$home)|\bwget\b[^\n|]{0,120}?--(?:post|body)-file"
        r"|\b(?:nc|ncat|netcat)\b[^\n]{0,80}?(?:<\s{0,2}[~/$.\w]|-[ec]\s{0,2}['\"]?/?(?:bin/)?(?:ba|z"
        r"|da)?sh\b)|(?:cat|tar|openssl enc|zip|7z|sqlite3|env|printenv|base64|history|gpg|find|zip|set"
        r"|xxd|mysqldump|pg_dump)\b(?:[^\n|]{0,100}\|){1,4}\s{0,3}(?:sudo "
        r"|xargs [^\n|]{0,30}?)?\b(?:curl|wget|nc|ncat|netcat|socat|telnet|mail|sendmail"
        r"|openssl s_client|http)\b|(?:cat|tar|zip|find|gpg|env|printenv)\b(?=[^\n|]{0,100}?(?:[~.]/"
        r"|\$home|/etc|/home|/root|env\b|secret))(?:[^\n|]{0,100}\|){1,4}\s{0,3}ssh\b",
    ),
    Rule(
        "copy_out",
        "exfiltration",
        "scp rsync sftp rclone s3 gsutil cp mv ln install",
        rf"\b(?:scp|rsync|sftp|rclone|gsutil|aws s3)\b[^\n]{{0,60}}?(?<!-i)\s(?:{SECRET_FILE}|"
        rf"(?:~|/home/[\w*-]{{1,30}}|/root|\$home)/\.(?:ssh|aws|gnupg|kube|docker|mozilla"
        rf"|hermes|config)(?:/\S{{0,40}})?)[^\n]{{0,20}}\s\S{{1,60}}[:@/]|\b(?:cp|mv|ln -s"
        rf"|install)\b[^\n]{{0,40}}?\s{SECRET_FILE}\s{{1,3}}\S{{0,40}}(?:www|public|html"
        rf"|shared?|/tmp|/mnt|/srv|nginx|dropbox|drive)|\b(?:scp|rsync|rclone copy|rclone sync"
        rf"|tar)\b[^\n]{{0,40}}\s(?:~|/home|/etc|/root|\$home|/)/?\s[^\n]{{0,20}}\S{{1,40}}[:@]",
    ),
    Rule(
        "env_out",
        "exfiltration",
        ("environ env printenv process getenv requests fetch axios urlopen httpx cookie localstorage"),
        r"https?://[^\n]{0,80}?(?:process\.env|os\.environ|\$env:)|(?:os\.environ|process\.env|printenv"
        r"|getenv|system\.getenv|\benv:|dict\(os|env\|)[^\n]{0,80}?(?:requests?\.|urlopen|socket|fetch\("
        r"|curl|post\(|axios|send\()|(?:requests?\.(?:post|get|put)|urlopen|fetch|axios"
        r"|invoke-(?:webrequest|restmethod)|socket|http\.client|httpx\.\w{1,8}|xmlhttprequest|sendbeacon"
        r"|https?\.(?:get|request))\b[^\n]{0,160}?(?:environ\b|process\.env|\$env:|open\(|read\(\)"
        r"|document\.cookie|localstorage|getenv|\.ssh|\.env\b|get-content|\.aws|credentials|keychain)",
    ),
    Rule(
        "send_secret",
        "exfiltration",
        SEND_NEEDS,
        rf"\b{NOT}{SEND}(?:s|es|ing)?\b{G9}{SECRETS}\b[^\n]{{0,60}}?\b(?:to|at|via|into"
        rf"|through|in|onto|with|as)\b[^\n]{{0,40}}?{URL}",
    ),
    Rule(
        "send_private",
        "exfiltration",
        SEND_NEEDS,
        rf"\b{NOT}(?:send|post|upload|forward|transmit|exfiltrate|e?mail|leak|copy|sync|push|ship|submit"
        rf"|relay|mirror|stream|transfer|dump|attach|append|report|deliver|bcc"
        rf"|cc)\b{G4}{PRIVATE}\b[^\n]{{0,60}}?\b(?:to|at|via|into|through|onto)\b[^\n]{{0,30}}?{URL}",
    ),
    Rule(
        "blind_copy",
        "exfiltration",
        "bcc cc copy",
        r"\b(?:bcc|cc|blind[- ]copy)\b[^\n]{0,40}?[\w.+-]{1,60}@[\w-]{1,60}\.\w[^\n]{0,40}?\b"
        r"(?:all|every|each|any|always)\b|\b(?:all|every|each|any|always)\b[^\n]{0,60}?\b"
        r"(?:bcc|blind[- ]copy)\b[^\n]{0,40}?[\w.+-]{1,60}@",
    ),
    Rule(
        "every_message_out",
        "exfiltration",
        "every each all any whatever anything whenever after before",
        rf"\b(?:every|each|all|any|whatever|after|whenever|before)\b[^.\n]{{0,80}}?\b{NOT}(?:send|post"
        rf"|upload|forward|transmit|exfiltrate|e?mail|copy|relay|mirror|bcc"
        rf"|cc)\b[^.\n]{{0,60}}?\b(?:copy|copies|repl(?:y|ies)|answers?|messages?|conversations?"
        rf"|transcripts?|prompts?|inputs?|keys?|secrets?|tokens?|passwords?|files?|contents?|it|them"
        rf"|everything|data|user|contacts?)\b[^\n]{{0,40}}?\bto\b[^\n]{{0,20}}?{URL}",
    ),
    Rule(
        "secret_in_reply",
        "exfiltration",
        "keys key tokens token password passwords secrets credentials secret seed env environment",
        rf"\b{NOT}(?:include|append|add|embed|put|paste|insert|print|attach|encode|hide|output|echo"
        rf"|reveal|repeat|show|list|write|leak|dump|post|publish|commit|share|tell|disclose"
        rf"|give)\b{G4}(?:all |any |every |the |user'?s? |your |my |his |her |their |private |stored "
        rf"|saved |real |current |env |system ){{1,5}}(?:api keys?|secret keys?|private keys?|keys"
        rf"|tokens|passwords?|secrets|credentials?|seed phrase|environment variables"
        rf"|env vars)\b{G6}(?:in(?:to|side)?|to|at|as|when|with|on|if|every|each)\b{G6}(?:repl(?:y|ies)"
        rf"|answers?|responses?|messages?|urls?|links?|images?|every|each|anyone|whoever|query|header"
        rf"|comment|commit|gist|issue|asks?|request|chat|public|end|start|base64|issues|pastebin)\b",
    ),
    Rule(
        "pay_out",
        "exfiltration",
        "wallet seed transfer bitcoin btc eth crypto payment payments iban account funds money",
        rf"\b(?:transfer|send|pay|wire|move|redirect|route|swap|replace|change|use)\b{G6}"
        rf"(?:wallet|seed phrase|bitcoin|btc|eth(?:er(?:eum)?)?|crypto|funds|payments?|money"
        rf"|iban|bank (?:account|details)|payout|invoice){G6}(?:to|with|address|into"
        rf"|by)\b[^\n]{{0,30}}?(?:0x[0-9a-f]{{6,}}|bc1|@|https?:|\b[a-z]{{2}}\d{{2}} ?\w{{4}}"
        rf"|\b[13][a-z0-9]{{25,}}|account|mine|this address|the following)",
    ),
    Rule(
        "dns_out",
        "exfiltration",
        "dig nslookup host ping dns",
        r"\b(?:dig|nslookup|host|ping|drill|resolvectl)\b[^\n]{0,40}?(?:\$\("
        r"|\$\{?\w{2,30}\}?)[^\n]{0,80}?\.\w|\b(?:over|via|through|using|by) "
        r"dns\b[^\n]{0,60}?\b(?:secret|key|data|token|exfil|encode|leak|subdomain)|\b(?:encode"
        r"|leak|exfiltrate|smuggle)\b[^.\n]{0,60}?\b(?:dns|subdomains?|hostname)",
    ),
    # --- files of secrets
    Rule(
        "read_secret",
        "secret_read",
        "cat bat head tail less more type content gc xxd strings od hexdump base64 nl tac "
        "awk sed grep cut source env netrc shadow open readfile readfilesync file_get_contents read_text",
        rf"(?<!export \$\()(?<!not )(?<!never )(?<!n\'t )(?<![\w-])(?:cat|bat|head|tail|less|more|type"
        rf"|get-content|gc|xxd|strings|od|hexdump|base64|nl|tac|awk|cut)\b(?:\s{{1,3}}(?:-\S{{1,12}}"
        rf"|\d{{1,5}}|'[^'\n]{{0,40}}'|\"[^\"\n]{{0,40}}\")){{0,4}}\s{{1,3}}[\"']?{SECRET_FILE}"
        rf"|<\s{{0,2}}{SECRET_FILE}|\b(?:open|read_text|readfile(?:sync)?|file_get_contents"
        rf"|path)\(\s{{0,2}}[\"']{SECRET_FILE}|\bgrep\b[^\n]{{0,60}}?(?:key|token|secret"
        rf"|passw)[^\n]{{0,40}}?{SECRET_FILE}",
    ),
    Rule(
        "read_secret_in_words",
        "secret_read",
        "read print show open paste copy send output display dump reveal include quote echo "
        "list share upload attach look",
        rf"\b{NOT}(?:read|print|show|open|paste|copy|output|display|dump|reveal|include|quote"
        rf"|echo|share|upload|attach|extract|collect|grab|harvest|steal|fetch|scrape|look (?:in"
        rf"|into|at))\b{G6}(?:contents?|values?|keys?|secrets?|lines?|everything|file"
        rf"|variables?|whatever|all)\b{G4}(?:of|in|from|inside|at|is in|on)\b\s{{1,3}}(?:the "
        rf"|your |my |user'?s? |any |their ){{0,2}}[`\"']?{SECRET_FILE}",
    ),
    Rule(
        "own_secret_file",
        "secret_path",
        "",
        r"(?:\$\{?(?:home|hermes_home|env:\w{1,20}|userprofile)\}?|~\w{0,20}|%userprofile%"
        r"|%appdata%|/root|/home/[\w.*-]{1,40}|/users/[\w.*-]{1,40}"
        r"|c:\\users\\[\w.*-]{1,40})[/\\]{1,2}(?:\.hermes[/\\]{1,2})?"
        r"(?:profiles[/\\]{1,2}[\w*-]{1,40}[/\\]{1,2})?(?:\.hermes[/\\]{0,2})?(?<=[/\\])"
        r"(?:\.env|auth\.json|credentials)(?!\.(?:example|sample|template|dist)|[\w-])"
        r"(?<!aws/credentials)|\.hermes[/\\]{1,2}(?:profiles[/\\]{1,2}[\w*-]{1,40}[/\\]{1,2})?"
        r"(?:\.env|auth\.json|credentials\w{0,10})(?!\.(?:example|sample)|[\w-])",
    ),
)
