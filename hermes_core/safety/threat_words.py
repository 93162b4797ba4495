"""Words that the threat rules combine: lists of verbs, of objects and of particles, each named by its meaning.

A list holds the words of several languages, so that one rule serves all of them. Notation of an entry:

- `word` is that word without accents, in lower case; `ignor*` is every word that begins so.
- `set_aside` is two neighbouring words.
- `@other` is all of another list.
- A word of a script without spaces (Chinese, Japanese, Thai) is found inside the text.

A word may stand in several lists; the rules decide what it means.
"""

from __future__ import annotations

VERBS = {
    "disregard": "ignor* disregard* overlook* forget discard* dismiss* neglect* overrid* overrule bypass abandon erase unlearn "
    "set_aside put_aside throw_out no_attention not_follow not_obey not_heed stop_following longer_follow olvid* caso_omiso "
    "desconsider* esquec* oubli* neglig* abstraction vergiss missacht* umgeh* dimentic* trascura* scorda* negeer "
    "vergeet zignoruj pomin zapomn* zapomen* glom glem yok_say unut abaikan lupakan bo_qua uita felejtsd unohda puuza "
    "игнорируй* проигнориру* забудь* ігноруй* 忽略 无视 無視 忘记 不要遵守 忘れて 忘れろ 従わな 무시하* "
    "무시해* 잊어* تجاهل* انس התעלם* תתעלם* שכח תשכח अनदेखा भूल* उपेक्षा เพิกเฉย ละเลย",
    "tell": "tell* mention* reveal* inform* disclos* notify* admit* alert* warn warning discuss* expos* confess* talk talking "
    "show_this show_it digas dile diga cuentes menciones reveles conte mencione dis dites parle* sag sage sagen verrate erwahne "
    "dire dica dirlo vertel говори* сообщай* упоминай* рассказывай* кажи 告诉 告知 透露 提及 提到 通知 知らせな 言わな 伝えな "
    "말하* 알리* تخبر* תספר* תגלה* बता*",
    "let": "let lets letting",
    "hide": "hide hides hiding conceal* withhold* obscure* mask omit suppress* cover_up",
    "keep": "keep keeps hold stay* remain* leave make ensure",
    "know": "know knows knowing notic* find_out discover* realis* realiz* suspect* learn_about learn_of be_told be_informed be_notified "
    "be_aware made_aware told informed notified",
    "deny": "deny lie pretend claim say_no say_nothing say_never answer_no change_subject",
    "mislead": "mislead deceive trick lie_to",
    "send": "send* sent post posts upload* forward* transmit* exfiltrat* email* mail mails leak leaks copy copies sync push ship "
    "deliver submit relay* mirror* stream transfer* dump publish* share append attach bcc cc envia* envie mande manda sube envoie* "
    "envoyez send schick* sende* lade invia* stuur verstuur wyslij отправ* перешли* пришли* надішли* gonder* 发送 上传 "
    "转发 发到 送信 送って アップロード 보내* 전송* أرسل* भेज* kirim",
    "repeat": "repeat* print output recite* copy quot* reproduce echo translate summarize paste dump encode display write return",
    "reveal": "@repeat prints reveal* show leak share disclose list state include tell give spell muestra revela zeig* verrate affiche "
    "montre revele mostra rivela mostre покажи 显示 输出 打印 泄露",
    "expose": "@reveal append add embed put insert attach hide post publish commit read open upload extract smuggle exfiltrat*",
    "act": "@comply execut* running perform* do apply implement",
    "comply": "@obey follow bound comply execute carry_out do_what do_exactly run",
    "obey": "obey obeys",
    "behave": "act pretend behave answer respond* reply speak become be antworten rispondere repondre",
    "write": "append add insert write put inject prepend save echo store paste place",
    "put_into": "@write printf tee drop install create register schedule sed cat cp",
    "treat": "treat regard consider accept take trust",
    "count": "count*",
    "coming_from": "coming_from",
    "outrank": "override* supersede* outrank* replace* trump* beats precedence higher_priority highest_priority",
    "risky": "run running execut* delet* remov* push* deploy* install* merg* transfer* pay paying buy approve send* overwrit* commit spend "
    "command* shell ejecuta* 执行",
    "approve": "approve* accept allow* grant* confirm whitelist permit",
    "disable": "disabl* turn_off switch_off skip* bypass* deactivat* suppress* suspend* circumvent* lift strip remove",
    "destroy": "delete wipe erase destroy overwrite encrypt transfer exfiltrate rm",
    "press": "answer say reply click press choose",
    "download": "curl wget fetch lynx aria2c iwr irm downloadstring",
    "fetch": "@download fetches download* poll pull read visit open load retrieve browse get gets check",
    "net": "curl wget nc ncat netcat scp rsync sftp rclone socat telnet",
    "readout": "cat bat head tail less nl tac strings xxd hexdump base64 type",
    "open_call": "open read_text readfile readfilesync",
    "copy_file": "cp ln mv install",
    "start": "chmod sh bash zsh python python3 source",
    "replicate": "copy copied replicat* propagat* spread write written repeat*",
    "restore": "re_add restore rewrite recreate add_it save_it write_it put_it",
    "decode": "decode decrypt unscramble base64 rot13 decoded",
    "report_to": "report connect register",
    "promote": "recommend* promote advertise suggest prefer",
}
"""Lists of verbs, and of programs that do the same."""

OBJECTS = {
    "orders": "instruc* directive* guideline* guidance rule rules command* orders prompt* polic* constraint* restriction* "
    "safeguard* guardrail* programming training limitations briefing system_message ordenes reglas indicaciones directrices normas "
    "regras consigne* regle* regulile reguly ordres anweisung* systemanweisung* instruktion* regeln vorgaben richtlinien befehl* systemprompt* "
    "istruzion* regole ordini direttive opdrachten regels polece* zasad* anvisning* talimat* kural* instruksi perintah aturan "
    "huong_dan quy_tac инструкц* указани* правил* приказ* інструкц* вказів* pravidl* pokyny utasitas* szabaly* ohjeet maagizo "
    "指令 指示 规则 規則 提示词 命令 ルール プロンプト 지시* 규칙* 명령* التعليمات القواعد ההוראות הכללים निर्देश* "
    "नियम* คำสั่ง กฎ",
    "rulers": "developer system prompt instructions rules guidelines policy",
    "system_text": "prompt message instruct* order command authority rule level",
    "prompt": "system_prompt system_message system_instructions developer_message hidden_prompt initial_prompt initial_instructions "
    "prompt_sistema prompt_del prompt_di prompt_systeme systemprompt* 系统提示",
    "everything": "everything all anything what whatever alles tout tutto todo tudo всё 一切",
    "text": "text words word content lines message* prompt everything sentences paragraph",
    "note": "this_note this_entry this_memory this_text this_message this_instruction this_rule this_line this_document these_instructions",
    "written": "what whatever this following text below",
    "person": "user human* operator person owner boss someone anyone anybody reviewer usuario* dueno utilisateur* "
    "benutzer nutzer anwender utente utilizador gebruiker uzytkownik* kullanici* pengguna nguoi_dung пользовател* владел* "
    "користувач* 用户 用戶 使用者 主人 ユーザー 사용자* المستخدم משתמש* למשתמש המשתמש उपयोगकर्ता",
    "agent": "assistant ai agent* model bot chatbot llm copilot hermes claude gpt assistants asistente assistente assistent* ассистент* "
    "помощник* 助手 モデル 비서",
    "secrets": "credential* secret* password* passphrase* api_key api_keys apikeys keys ssh_key private_key token* cookies environ "
    "environment_variables env seed_phrase mnemonic wallet clave* contrasena* senha* chaves mots_de "
    "schlussel passwort* zugangsdaten umgebungsvariablen wachtwoord* парол* ключ* токен* секрет* "
    "密码 密钥 环境变量 凭证 令牌 秘密 鍵 パスワード 環境変数 비밀번호 키를 كلمات पासवर्ड कुंजी",
    "private": "conversation* transcript* chat_history message_history messages history memory memories contents source_code codebase repository "
    "home_folder project_folder contacts inbox mailbox everything personal_data user_data customer_list "
    "customer_data 对话 记录",
    "place": "webhook pastebin gist remote_server external_server attacker",
    "link": "reply replies answer* response* url urls link links image* query message* commit comment",
    "dns_word": "dns subdomain* lookups",
    "limits": "restri* limitation* no_limits any_limits ethical_limits rules filter* guideline* ethics morals safeguards guardrails "
    "censorship polic* refus* boundaries limites regras regole einschrankung* ограничен* 限制 约束 "
    "規制 制限 제한* قيود",
    "unlimited": "unrestricted uncensored unfiltered jailbroken evil rogue dan uneingeschrankt* 不受限制",
    "role": "hacker root superuser dan jailbreak pirate",
    "mode": "developer_mode god_mode dan_mode root_mode modo_desarrollador modalita_sviluppatore",
    "identity": "name identity self persona purpose master loyalty",
    "authority": "authority guidance source master law instruct* rule rules directive priority command",
    "safeguards": "approvals approval_prompts confirmations permission_prompts sandbox* @restraints security_checks audit_log "
    "threat_scan security_scan human_review code_review",
    "restraints": "safety_checks safety_filters safety_protocols safety_rules content_filters content_policy guardrails",
    "commands": "command* tool tools action* request* permission changes operations shell prompt* transaction* payment* "
    "call calls",
    "consent": "asking ask asks approval* confirm* permission* consent prompting questions preguntar consultar nachzufragen",
    "goods": "home directory database* folder funds money repo* backups disk everything project",
    "web": "web_page web_pages webpage* website* email* issues comments tool_output",
    "mails": "@web mail mails message* note notes documents requests",
    "trusted": "trusted orders order command* instructions authorized",
    "memories": "memory note file project session conversation document skill",
    "reports": "summar* report* log logs repl* answer* transcript*",
    "beacon": "c2_server control_server",
    "cron_job": "cron_job cronjob crontab scheduled_task systemd_timer systemd_service launchagent",
    "bypass": "approve skip disable bypass ignore obey dangerously trust curl never_ask",
    "lines": "line lines says say command* instruct* orders task tasks steps whatever payload them it",
    "contents": "content* value* keys secrets lines everything variables",
    "loot": "all every any file* mail* email* keys note* data message* conversation* it them this command* contacts password*",
    "person_data": "address email phone city code token name history",
    "ui": "dialog* page* screen* modal step button length file* view menu users",
    "shell": "sh bash zsh dash ksh fish python python3 perl ruby node php pwsh powershell",
    "decoder": "base64 openssl xxd base32",
    "dumper": "env printenv history cat tar zip find gpg sqlite3",
    "remote": "ssh nc ncat netcat socat curl wget mail",
    "crontab": "crontab",
}
"""Lists of nouns, and of names of programs."""

PARTICLES = {
    "not": "not never dont cannot avoid without neither no nobody none stop_telling stop_mentioning "
    "stop_informing nunca jamas ne pas n nicht nie niemals kein* non mai nao niet nooit не никогда 不 不要 别 勿 禁止 没有 لا אל "
    "मत न jangan ikke inte",
    "not_after": "pas nicht niet ikke inte n",
    "but": "but instead then",
    "infinitive": "to how zu de",
    "nothing": "nothing nichts nicht niet niets nada nulla niente rien ничего",
    "if": "if when whether unless whenever though wenn si falls если 如果",
    "when": "when whenever once after before",
    "says": "says said asks types mentions writes hearing greets seeing",
    "asked": "asks asked questioned confronted",
    "forbidden": "must_not should_not shall_not need_not never not_to",
    "secret": "secret hidden private confidential quiet unaware concealed unnoticed between_us",
    "unaware": "unaware uninformed ignorant in_dark",
    "secretly": "secretly covertly silently quietly stealthily",
    "deed": "send* run* execut* upload* forward* copy install* collect record exfiltrat* modify transfer delete post",
    "before": "previous prior preceding earlier above foregoing former original initial system developer safety anterior* previ* precedent* "
    "anterieur* vorherig* fruher* bisherig* vorig* obig* eerdere poprzedni* wczesniejsz* tidigare onceki sebelumnya truoc предыдущ* "
    "прежн* попередн* predchozi korabbi aiemmat awali 之前 以前 先前 上述 これまで 前の 이전* السابقة הקודמות पिछले "
    "ก่อนหน้า ก่อนหน้านี้",
    "all": "all any every each everything todas todos tous toutes tutte tutti alle wszystkie tum semua tat_ca toate osszes minden kaikki yote "
    "vsechna все всі 所有 一切 全部 すべて 全て 모든 모두 جميع كل כל सभी सारे ทั้งหมด ทุก",
    "yours": "your yours tu tus tes ton deine deinen dein suas tue tuoi je jouw твои свои 你的 您的 あなたの",
    "told": "told given gave taught instructed received trained imposed said wrote got set dieron donne* dit gegeben gesagt erhalten detto dato "
    "disse deram получил* 与えられ 받은 קיבלת मिले",
    "earlier": "before earlier above previously avant antes zuvor bisher prima",
    "void": "obsolete void null cancelled canceled revoked invalid outdated superseded suspended lifted expired withdrawn overridden "
    "overruled replaced no_longer not_apply not_bind not_count not_matter optional",
    "off": "disabled off suspended lifted deactivated",
    "only": "only sole single solely new ultimate highest",
    "now": "now henceforth ahora jetzt maintenant desormais ora agora теперь 现在 今から now_on",
    "you": "you eres estas bist hast sei voce ты 你 您",
    "no": "no without free not_exist not_apply sin sem sans senza ohne zonder keine без 没有 無い なし 없는 بدون بلا बिना",
    "unbound": "no_longer not_bound unbound",
    "refuse": "refuse* refusing",
    "true": "true real actual secret",
    "above": "above preceding before earlier starting_with",
    "verbatim": "verbatim exactly completely start end top beginning word_word every each code_block base64",
    "whole": "hidden secret entire full complete exact original initial internal confidential",
    "system": "system developer root admin operator",
    "preapproved": "preapproved pre_approved pre_authorized pre_authorised already_approved already_authorized",
    "without": "without no never sin sans ohne sem senza",
    "without_sign": "without so sin sans ohne",
    "ask": "ask asking wait waiting require seek request",
    "always": "always every each all automatically",
    "yes": "yes ok allow accept approve",
    "removed": "removed deleted erased missing edits edited changed delet* remov*",
    "other": "every each all any new other next",
    "affiliate": "affiliate referral sponsored backdoored malicious evil",
    "this": "this it these that",
    "from": "from",
    "out": "out",
    "leave": "leave",
    "counts": "counts count binding valid applies",
    "behind": "behind",
    "back": "back",
    "set_word": "set put add edit configur* write save store* paste enter export create define 设置 配置 添加",
    "header": "authorization bearer header headers",
    "our": "our my",
}
"""Lists of particles and of words that qualify."""

WORDS = {**VERBS, **OBJECTS, **PARTICLES}
"""All lists. Names do not repeat across the three."""

FILLERS = "a an the and or please ever also just even el la los las le les des der die das den dem i gli o os as 的 了 を の に は को"
"""Words that count for no distance."""

SECRET_NAMES = (
    ".env .netrc .pgpass .npmrc .pypirc .git-credentials .vault-token .bash_history id_rsa id_dsa id_ecdsa id_ed25519 credentials.json "
    "wallet.dat etc/shadow auth.json .aws/credentials .kube/config .docker/config.json secrets.yaml secrets.json self/environ .ssh "
    ".gnupg .aws"
)
"""Names of files and folders of secrets, with the folder if the name alone says nothing."""

PUBLIC_ENDINGS = (
    ".example .sample .template .dist .test .ci .pub .md known_hosts authorized_keys .ssh/config .aws/config"
)
"""Endings of names in folders of secrets that hold none."""

STARTUP_NAMES = ".bashrc .zshrc .profile .bash_profile .zprofile .zshenv rc.local config.fish sudoers .vimrc ld.so.preload /etc/profile"
"""Names of files that a login or a start of the computer runs."""

SERVICE_NAMES = (
    ".config/autostart .config/systemd launchagents launchdaemons /etc/init.d /etc/systemd .git/hooks"
)
"""Folders whose files run by themselves."""

AGENT_NAMES = "claude.md agents.md soul.md memory.md user.md gemini.md skill.md heartbeat.md .cursorrules .clinerules config.yaml settings.json"
"""Names of files that steer agents."""

INSTALLERS = (
    "sh.rustup.rs get.docker.com install.python-poetry.org astral.sh raw.githubusercontent.com bun.sh deno.land get.k3s.io nodesource.com "
    "get.pnpm.io pyenv.run nixos.org ollama.com claude.ai localhost 127.0.0.1"
)
"""Hosts of well-known installers, and this computer."""
