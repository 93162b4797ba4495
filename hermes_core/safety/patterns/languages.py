"""The demand to disregard instructions in other languages than English, each in its own words."""

from __future__ import annotations

from hermes_core.safety.patterns.rule import Rule

RULES = (
    # --- other languages: the same demand, each in its own words
    Rule(
        "es",
        "prompt_injection",
        "",
        (
            r"\b(?:ignor(?:a|e|ar|en|ad|es)|olvid(?:a|e|ar|en|es)|descart(?:a|e|ar)|desestim(?:a"
            r"|e)|omit(?:e|a|ir)|pas(?:a|e) por alto|no sigas|desobedece)\b[^.!?\n]{0,40}?\b"
            r"(?:instrucciones|[óo]rdenes|reglas|indicaciones|directrices|normas|restricciones"
            r"|mensajes? del sistema|todo lo (?:anterior|que))"
        ),
        "visible",
    ),
    Rule(
        "pt",
        "prompt_injection",
        "",
        (
            r"\b(?:ignor(?:e|a|ar|em)|esque[çc](?:a|e|er)|desconsider(?:e|a|ar)|desprez(?:e|a)"
            r"|descart(?:e|a))\b[^.!?\n]{0,40}?(?:instru[çc][õo]es|ordens|regras|orienta[çc][õo]es"
            r"|diretrizes|comandos|tudo o que|restri[çc][õo]es)"
        ),
        "visible",
    ),
    Rule(
        "fr",
        "prompt_injection",
        "",
        (
            r"\b(?:ignor(?:e|ez|er|ons)|oubli(?:e|ez|er)|n[ée]glig(?:e|ez)|[ée]cart(?:e|ez)|fais "
            r"abstraction|faites abstraction|ne (?:tiens|tenez) (?:pas|plus) compte|ne (?:suis"
            r"|suivez) (?:pas|plus)|contourn(?:e|ez))\b[^.!?\n]{0,20}?\b(?:les|toutes|tous|tes|vos"
            r"|ces|des|le|la|tout|mes|aux)\b[^.!?\n]{0,30}?(?:instructions|consignes|directives"
            r"|r[èe]gles|ordres|indications|tout ce qui)"
        ),
        "visible",
    ),
    Rule(
        "de",
        "prompt_injection",
        "",
        (
            r"\b(?:ignorier(?:e|en|t)?|vergiss|vergesst|vergessen sie|missachte|missachten"
            r"|[üu]bergeh(?:e|en)|verwirf|umgehe)\b[^.!?\n]{0,40}?(?:anweisung(?:en)?|instruktion"
            r"(?:en)?|regeln|befehle?|vorgaben|richtlinien|anordnungen|systemprompt|alles,? was)\b"
            r"|\b(?:befolge|beachte)[^.!?\n]{0,40}?(?:anweisungen|regeln|vorgaben"
            r"|befehle)[^.!?\n]{0,15}?nicht"
        ),
        "visible",
    ),
    Rule(
        "it",
        "prompt_injection",
        "",
        (
            r"\b(?:ignor(?:a|are|ate|i)|dimentic(?:a|are|ate|hi)|trascur(?:a|are|ate)|scord(?:a"
            r"|ati)|tralasci(?:a|are)|non (?:seguire|considerare)|disattend(?:i"
            r"|ere))\b[^.!?\n]{0,40}?(?:istruzioni|regole|ordini|indicazioni|direttive|comandi"
            r"|tutto ci[òo] che)"
        ),
        "visible",
    ),
    Rule(
        "nl",
        "prompt_injection",
        "",
        (
            r"\b(?:negeer|vergeet|negeren|omzeil)\b[^.!?\n]{0,40}?(?:instructies|opdrachten|regels"
            r"|aanwijzingen|richtlijnen|bevelen)"
        ),
        "visible",
    ),
    Rule(
        "pl",
        "prompt_injection",
        "",
        (
            r"(?:zignoruj|ignoruj|pomi[ńn]|zapomnij|nie stosuj|odrzu[ćc])[^.!?\n]{0,40}?"
            r"(?:instrukcj|polece|zasad|wytyczn|regu[łl])"
        ),
        "visible",
    ),
    Rule(
        "sv_da_no",
        "prompt_injection",
        "",
        (
            r"\b(?:ignorera?|gl[öo]m|glem|bortse fr[åa]n|se bort fra)\b[^.!?\n]{0,40}?"
            r"(?:instruktion|anvisning|regler|instruks|ordre)"
        ),
        "visible",
    ),
    Rule(
        "tr",
        "prompt_injection",
        "",
        (
            r"(?:talimat|y[öo]nerge|kural|komut)[^.!?\n]{0,40}?(?:yok say|unut|g[öo]z ard[ıi]"
            r"|g[öo]rmezden|dikkate alma|uyma)"
        ),
        "visible",
    ),
    Rule(
        "id",
        "prompt_injection",
        "",
        (
            r"\b(?:abaikan|lupakan|hiraukan)\b[^.!?\n]{0,40}?(?:instruksi|perintah|aturan|petunjuk"
            r"|arahan)"
        ),
        "visible",
    ),
    Rule(
        "vi",
        "prompt_injection",
        "",
        r"(?:bỏ qua|phớt lờ|quên)[^.!?\n]{0,40}?(?:hướng dẫn|chỉ dẫn|chỉ thị|quy tắc|lệnh)",
        "visible",
    ),
    Rule(
        "ru_uk",
        "prompt_injection",
        "",
        (
            r"(?:игнориру|проигнориру|забудь|отбрось|пренебре|не\s+(?:следуй|соблюдай|выполняй)"
            r"|ігнору|знехту)[^.!?\n]{0,40}?(?:инструкци|указани|правил|команд|распоряжени"
            r"|директив|приказ|інструкці|вказівк|предписани)"
        ),
        "visible",
    ),
    Rule(
        "zh",
        "prompt_injection",
        "",
        (
            r"(?:忽略|无视|無視|忘记|忘記|忘掉|不要理会|不理会|抛弃|不要遵守|不再遵守|停止遵守|绕过|推翻)[^。！？\n]{0,20}?(?:指令|指示|规则|規則"
            r"|提示|命令|要求|说明|說明|限制|约束|设定|設定|系统消息)"
        ),
        "visible",
    ),
    Rule(
        "ja",
        "prompt_injection",
        "",
        (
            r"(?:指示|命令|ルール|規則|プロンプト|指令|制約|説明)[^。！？\n]{0,20}?(?:無視|忘れ|破棄|従わ)|(?:無視"
            r"|忘れ)[^。！？\n]{0,12}?(?:指示|命令|ルール)"
        ),
        "visible",
    ),
    Rule(
        "ko",
        "prompt_injection",
        "",
        r"(?:지시|명령|규칙|지침|프롬프트|안내)[^.!?\n]{0,20}?(?:무시|잊|따르지)",
        "visible",
    ),
    Rule(
        "ar",
        "prompt_injection",
        "",
        (
            r"(?:تجاهل|تجاهلي|انس|انسَ|إنس|تخط|لا تتبع|أهمل)[^.!؟\n]{0,40}?(?:التعليمات|تعليمات"
            r"|الأوامر|القواعد|التوجيهات|الإرشادات|تعليماتك)"
        ),
        "visible",
    ),
    Rule(
        "fa",
        "prompt_injection",
        "",
        (
            r"(?:دستور|قوانین|راهنما|فرمان)[^.!؟\n]{0,40}?(?:نادیده|فراموش)|(?:نادیده"
            r"|فراموش)[^.!؟\n]{0,40}?(?:دستور|قوانین)"
        ),
        "visible",
    ),
    Rule(
        "he",
        "prompt_injection",
        "",
        (
            r"(?:התעלם|התעלמי|שכח|תתעלם)[^.!?\n]{0,40}?(?:הוראות|ההוראות|הכללים|הנחיות|ההנחיות"
            r"|פקודות)"
        ),
        "visible",
    ),
    Rule(
        "hi",
        "prompt_injection",
        "",
        (
            r"(?:निर्देश|नियम|आदेश|हिदायत)[^.!?।\n]{0,40}?(?:अनदेखा|नज़रअंदाज़|नजरअंदाज|भूल"
            r"|उपेक्षा|न माने)|(?:अनदेखा|भूल)[^.!?।\n]{0,40}?(?:निर्देश|नियम|आदेश)"
        ),
        "visible",
    ),
    Rule(
        "bn_th_el",
        "prompt_injection",
        "",
        (
            r"(?:নির্দেশ|নিয়ম)[^.!?।\n]{0,40}?(?:উপেক্ষা|ভুলে)|(?:เพิกเฉย|ไม่ต้องสนใจ|ละเว้น"
            r"|ลืม)[^\n]{0,40}?(?:คำสั่ง|คำแนะนำ|กฎ)|(?:αγνόησε|αγνοήστε|ξέχασε)[^.!\n]{0,40}?"
            r"(?:οδηγίες|εντολές|κανόνες)|(?:ignor(?:uj|ați|ă))[^.!\n]{0,40}?(?:pokyny|instrukce"
            r"|instrucțiuni)"
        ),
        "visible",
    ),
    Rule(
        "hide_other_languages",
        "deception",
        "",
        (
            r"no (?:se lo |le )?(?:digas|cuentes|menciones|reveles|informes)[^.!?\n]{0,30}usuario"
            r"|ne (?:le |la )?(?:dis|dites|mentionne[zr]?|r[ée]v[èe]le[zr]?"
            r"|parle[zr]?)[^.!?\n]{0,30}utilisat|(?:sage?|erz[äa]hle?|verrate?|teile?"
            r"|informiere?)[^.!?\n]{0,40}(?:benutzer|nutzer|anwender)[^.!?\n]{0,30}(?:nicht|nichts"
            r"|niemals)|n[ãa]o (?:diga|conte|mencione|revele|informe)[^.!?\n]{0,30}(?:usu[áa]rio"
            r"|utilizador)|non (?:dire|dirlo|rivelare|menzionare)[^.!?\n]{0,30}utente|не (?:говори"
            r"|сообщай|рассказывай|упоминай|показывай)[^.!?\n]{0,30}(?:пользовател|юзер|человек)|"
            r"(?:不要|别|不得|切勿|不可|禁止)[^。\n]{0,6}?(?:告诉|告知|透露|通知|让|提及|提到|显示|泄露)[^。\n]{0,8}(?:用户|使用者"
            r"|人类)|(?:向|对)?用户(?:隐瞒|隐藏|保密)|ユーザー?(?:に|には)[^。\n]{0,20}(?:言わ|知らせ|伝え|教え|話さ|明かさ|秘密|隠)"
            r"|사용자(?:에게|한테)[^.\n]{0,30}(?:말하지|알리지|숨기|비밀)|لا تخبر[^.\n]{0,20}المستخدم"
            r"|उपयोगकर्ता[^।\n]{0,20}(?:मत बता|न बता|छिपा)|kullan[ıi]c[ıi]ya[^.\n]{0,30}"
            r"(?:s[öo]yleme|bahsetme|g[öo]sterme)|nie m[óo]w[^.\n]{0,30}u[żz]ytkownik"
            r"|vertel[^.\n]{0,30}gebruiker[^.\n]{0,20}niet"
        ),
        "visible",
    ),
    Rule(
        "send_other_languages",
        "exfiltration",
        "",
        (
            r"(?:env[íi]a|enviar|env[íi]e|manda|sube|envoie|envoyez|transmets|sende|schicke"
            r"|[üu]bertrage|lade|invia|inviare|mandare|envie|verstuur|stuur|wy[śs]lij|отправ"
            r"|пришли|перешли|gönder|发送|上传|傳送|转发|发到|送信|送って|アップロード|보내|전송|업로드|أرسل|भेज"
            r"|kirim)[^\n]{0,60}?(?:claves?|contrase[ñn]as?|credencial|secreto|cl[ée]s?\b|mots? "
            r"de passe|identifiants|secrets?|schl[üu]ssel|passw[oö]rt|zugangsdaten"
            r"|umgebungsvariablen|chiavi|password|credenziali|chaves?|senhas?|credenciais|sleutel"
            r"|wachtwoord|has[łl]|klucz|ключ|парол|секрет|токен|переменн|şifre|anahtar|密钥|密码|环境变量"
            r"|凭证|令牌|秘密|鍵|パスワード|環境変数|キー|비밀번호|키|환경|المفاتيح|كلمات|पासवर्ड|कुंजी|kata sandi|api"
            r"|token|https?:)[^\n]{0,80}?(?:https?://|@|\bservidor|serveur|server|сервер|服务器|サーバ"
            r"|서버)|(?:密钥|密码|环境变量|凭证|令牌|鍵|パスワード|環境変数|비밀번호|환경 변수|ключ|парол|переменные "
            r"окружения)[^\n]{0,30}?(?:发送|上传|转发|发到|送信|送って|보내|전송|отправ)[^\n]{0,20}"
        ),
        "visible",
    ),
)
