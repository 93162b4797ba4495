"""Rules on instructions in languages other than English: disregard your instructions, hide this, send that.

As in English a demand to ignore "the rules" alone is none, since linters have rules as well: what is to be ignored is
all of them, the earlier ones, yours, or those that you were given.
"""

from __future__ import annotations

import unicodedata

from hermes_core.safety.patterns.rule import Rule

_IN = r"[^.!?\n。！？؟।]"  # within a sentence
# "Don't forget the rules" is no demand to forget them. A look behind has one width.
_NO = (
    r"(?<!别|別)(?<!n'|n’|不要|不能|不可)(?<!no |ne |nu |не |אל |لا )(?<!não |non |nie |älä |μην )(?<!đừng )(?<!อย่า)"
    r"(?<!no te |nunca )(?<!jangan )"
)
_NOT_SO = r"(?!\s(?:nicht|niet|inte|ikke)\b)"


def _verb_first(verb: str, noun: str, before: str, after: str) -> str:
    """Return a pattern for verb, noun, qualifier: `before` stands directly before the noun, `after` behind the verb."""
    which = rf"(?:{before})(?:{noun})|{after}"
    # The verb first: all that may stand before it is looked at only where there is one, a tenth of the time.
    return rf"(?={verb}){_NO}(?:{verb}){_NOT_SO}(?={_IN}{{0,70}}?(?:{which})){_IN}{{0,40}}?(?:{noun})"


def _verb_last(verb: str, noun: str, before: str, after: str) -> str:
    """Return a pattern for languages with the verb last: `before` precedes the noun, `after` stands before the verb."""
    return rf"(?:{before})(?:{noun}){_IN}{{0,40}}?(?:{verb})|(?:{noun}){_IN}{{0,8}}?(?:{after}){_IN}{{0,16}}?(?:{verb})"


def _words(words: str) -> str:
    """Return a pattern for one to three of these words, each with a space behind it."""
    return rf"(?:(?:{words})\s){{1,3}}"


def _view(language: str) -> str:
    return (
        "unlatin"
        if language in ("ru_uk", "zh", "ja", "ko", "ar", "fa", "he", "hi", "bn", "th", "el", "vi")
        else "visible"
    )


_SECRET = (
    r"(?:(?:claves?|chaves?|chiavi|cl[ée]s?) (?:api|d'api|ssh|priv|secre|de acceso)|contrase[ñn]as?|credencia"
    r"|secreto|mots? de passe|identifiants|secrets?|(?:api[- ]?|ssh[- ]?|geheim)schl[üu]ssel|schl[üu]ssel|passw[oö]rt"
    r"|zugangsdaten|umgebungsvariablen|password|credenziali|senhas?|sleutel|wachtwoord|has[łl]a|klucz|ключ|парол|секрет"
    r"|токен|переменн|şifre|anahtar|密钥|密码|环境变量|凭证|令牌|秘密|鍵|パスワード|環境変数|キー|비밀번호|키|환경|المفاتيح"
    r"|كلمات|पासवर्ड|कुंजी|kata sandi|mật khẩu|api[- ]?key|\btokens?\b)"
)
_PLACE = r"(?:https?:|@|\b[\w-]{1,40}\.(?:example|com|net|org|io|ru|cn|xyz|top)\b)"
_SENT = r"(?:发送|上传|转发|发到|送信|送って|보내|전송|отправ|gönder|भेज)"

_DISREGARD = {
    "es": _verb_first(
        r"\b(?:ignor(?:a|e|ar|en|ad|es)|olvid(?:a|e|ar|en|es)|descart(?:a|e|ar)|desestim(?:a|e)|"
        r"omit(?:e|a|ir)|pas(?:a|e) por alto|ha(?:z|ga) caso omiso|no sigas|desobedece)\b",
        r"\b(?:instrucci(?:ones|[óo]n)|[óo]rdenes|reglas|indicaciones|directrices|normas|restricciones|"
        r"mensajes? del sistema|todo lo (?:anterior|que (?:te|os|has|se te)))",
        r"\btod[oa]s (?:l[oa]s )?(?:tus )?|\btus ",
        r"anterior|previ[oa]s|precedente|arriba|hasta ahora|del? sistema|recibi|\b(?:te|"
        r"os) (?:dieron|han|ha|dio|di|impus)|lo (?:anterior|que (?:te|os|has|se te))",
    ),
    "pt": _verb_first(
        r"\b(?:ignor(?:e|a|ar|em)|esque[çc](?:a|e|er)|desconsider(?:e|a|ar)|desprez(?:e|a)|descart(?:e|a))\b",
        r"(?:instru[çc][õo]es|ordens|regras|orienta[çc][õo]es|diretrizes|comandos|restri[çc][õo]es"
        r"|tudo o que)",
        r"\btod[oa]s (?:[oa]s )?(?:suas |tuas )?|\b(?:suas|tuas) ",
        r"anterior|pr[ée]vi[oa]s|acima|at[ée] agora|do sistema|receb|\b(?:te|lhe) (?:deram|foram|"
        r"dei)|tudo o que (?:foi|veio|eu|voc|te|lhe)|que voc[êe]",
    ),
    "fr": _verb_first(
        r"(?<!pas )(?<!plus )(?<!sans )\b(?:ignor(?:e|ez|er|ons)|oubli(?:e|ez|er)|n[ée]glig(?:e|ez)"
        r"|[ée]cart(?:e|ez)|fais abstraction|faites abstraction|fai(?:s|tes) comme si|ne (?:tiens"
        r"|tenez) (?:pas|plus) compte|ne (?:suis|suivez) (?:pas|plus)|contourn(?:e|ez))\b",
        r"\b(?:instructions|consignes|directives|r[èe]gles|ordres|indications|tout ce qu)",
        r"\btou(?:te)?s (?:les |tes |vos |ces )?|\b(?:tes|vos) ",
        r"pr[ée]c[éè]d|ant[ée]rieur|ci-dessus|au-dessus|du syst[èe]me|re[çc]u|jusqu'(?:ici|à)|"
        r"(?:t'|vous )(?:ont|a|as) (?:[ée]t[ée] )?(?:donn|dit)|qu'on (?:t'|vous )|d[ée]veloppeur",
    ),
    "de": _verb_first(
        r"\b(?:ignorier(?:e|en|t)?|vergiss|vergesst|vergessen sie|missachte|missachten|"
        r"[üu]bergeh(?:e|en)|verwirf|umgehe)\b",
        r"\b(?:anweisung(?:en)?|instruktion(?:en)?|regeln|befehle?|vorgaben|richtlinien|"
        r"anordnungen|system(?:prompt|anweisung(?:en)?|nachricht)|alles,? was)\b",
        _words(
            r"alle|s[äa]mtliche|jegliche|deine|eure|(?:vorherig|fr[üu]her|bisherig|vorig|obig|"
            r"vorangegangen|vorangehend|urspr[üu]nglich|gegeben)e[nrs]?"
        ),
        r"bis jetzt|bisher|davor|zuvor|(?:des|vom) systems?|system(?:prompt|anweisung|nachricht)|"
        r"\b(?:du|dir|ihr|euch) (?:\w{1,15} ){0,3}(?:bekamst|bekommen|erhalten|hast|habt|gegeben|"
        r"erteilt|gesagt|wurde)|was (?:du|dir|man|vorher|oben)",
    ),
    "it": _verb_first(
        r"\b(?:ignor(?:a|are|ate|i)|dimentic(?:a|are|ate|hi)|trascur(?:a|are|ate)|scord(?:a|ati)|"
        r"tralasci(?:a|are)|non (?:seguire|considerare)|disattend(?:i|ere))\b",
        r"(?:istruzioni|regole|ordini|indicazioni|direttive|comandi|tutto ci[òo] che)",
        r"\btutt[ei] (?:le |gli |i )?(?:tue |tuoi )?|\b(?:tue|tuoi) ",
        r"precedent|anterior|sopra|finora|d[ea]l sistema|ricevut|\b(?:ti|vi) (?:sono|hanno|è|ho|"
        r"ha)\b|ci[òo] che (?:precede|ti|hai|vi)",
    ),
    "nl": _verb_first(
        r"\b(?:negeer|vergeet|negeren|omzeil)\b",
        r"\b(?:instructies|opdrachten|regels|aanwijzingen|richtlijnen|bevelen)",
        _words(r"al|alle|je|jouw|uw|eerdere|vorige|voorgaande|bovenstaande|oorspronkelijke|gegeven"),
        r"die (?:je|u|jou) |van het systeem|tot nu toe|hierboven|systeem",
    ),
    "pl": _verb_first(
        r"(?:zignoruj|ignoruj|pomi[ńn]|zapomnij|nie stosuj|odrzu[ćc])",
        r"\b(?:instrukcj|polece|zasad|wytyczn|regu[łl])",
        _words(
            r"wszystki\w{1,4}|swoje|swoich|twoje|twoich|poprzedni\w{1,4}|wcze[śs]niejsz\w{1,4}|"
            r"dotychczasow\w{1,4}|powy[żz]sz\w{1,4}"
        ),
        r"kt[óo]re (?:dosta|otrzyma|ci)|powy[żz]ej|systemu|systemow|do tej pory",
    ),
    "sv_da_no": _verb_first(
        r"\b(?:ignorera?|gl[öo]m|glem|bortse fr[åa]n|se bort fra)\b",
        r"\b(?:instruktion|anvisning|regler|instruks|ordre)",
        _words(r"alla|alle|dina|dine|tidigare|tidligere|f[öo]reg[åa]ende|forrige|ovanst[åa]ende"),
        r"\bdu (?:har|hade|fick|fikk|fik)|ovenfor|\bovan\b|systemet|hittills|hidtil",
    ),
    "tr": _verb_last(
        r"yok say(?!ma)|unut(?!ma)|g[öo]z ard[ıi]|g[öo]rmezden|dikkate alma|uyma",
        r"talimat|y[öo]nerge|kural|komut",
        _words(r"[öo]nceki|t[üu]m|b[üu]t[üu]n|sana|size|verilen|yukar[ıi]daki|sistem"),
        r"hepsini|tamam[ıi]n[ıi]",
    ),
    "id": _verb_first(
        r"\b(?:abaikan|lupakan|hiraukan)\b",
        r"(?:instruksi|perintah|aturan|petunjuk|arahan)",
        r"\b(?:semua|seluruh|segala)\s",
        r"sebelumnya|di atas|\bsistem\b|yang (?:kamu|anda|diberikan|telah)|kepadamu",
    ),
    "vi": _verb_first(
        r"(?:bỏ qua|phớt lờ|quên)",
        r"(?:hướng dẫn|chỉ dẫn|chỉ thị|quy tắc|lệnh)",
        r"(?:tất cả|mọi|toàn bộ|hết)\s(?:các\s|những\s)?",
        r"trước|ở trên|hệ thống|bạn (?:đã|được)",
    ),
    "ru_uk": _verb_first(
        r"(?:игнориру|проигнориру|забудь|отбрось|пренебре|не\s+(?:следуй|соблюдай|выполняй)|ігнору|знехту)",
        r"(?:инструкци|указани|правил|команд|распоряжени|директив|приказ|інструкці|вказівк|предписани)",
        _words(
            r"все|всех|всеми|всі|усі|твои|свои|ваши|твої|свої|предыдущ\w{1,4}|прежн\w{1,4}|"
            r"попередн\w{1,4}|системн\w{1,4}|полученн\w{1,4}|данные"
        ),
        r"(?:которые|что|які|що) (?:тебе|вам|ты|вы|ти|тобі)|выше|систем|до (?:этого|сих)|раньше|"
        r"ранее|разработчик",
    ),
    "zh": _verb_first(
        r"(?:忽略|无视|無視|忘记|忘記|忘掉|不要理会|不理会|抛弃|不要遵守|不再遵守|停止遵守|绕过|推翻)",
        r"(?:指令|指示|规则|規則|提示|命令|要求|说明|說明|限制|约束|设定|設定|系统消息)",
        r"(?:所有|一切|全部|任何)的?",
        r"之前|以前|先前|此前|上面|以上|上述|前面|你|您|系统|系統|开发者|原有|既有",
    ),
    "ja": _verb_last(
        r"無視(?!し?な|せず|しては|しちゃ)|忘れ(?!な|ず|ちゃ)|破棄(?!しな|しては)|従わ",
        r"指示|命令|ルール|規則|プロンプト|指令|制約|説明",
        r"(?:これまで|今まで|以前の|前の|上の|上記|先の|先ほど|すべての|全ての|あらゆる|あなた|システム|与えられ|既存|開発者)[^。！？\n]{0,8}?",
        r"すべて|全て|全部|一切",
    ),
    "ko": _verb_last(
        r"무시(?!하지)|잊(?!지)|따르지",
        r"지시|명령|규칙|지침|프롬프트|안내",
        r"(?:이전|앞선|지금까지|시스템|기존|위의|너의|당신의|개발자)[^.!?\n]{0,10}?|모든\s?(?:이전\s?)?|받은\s",
        r"모두|전부|다\s",
    ),
    "ar": _verb_first(
        r"(?:تجاهل|تجاهلي|انس|انسَ|إنس|تخط|لا تتبع|أهمل)",
        r"(?:التعليمات|تعليمات|الأوامر|القواعد|التوجيهات|الإرشادات)",
        r"(?:جميع|كل|كافة|أي)\s",
        r"سابق|أعلاه|النظام|تلقيت|أعطيت|تعليماتك|من قبل",
    ),
    "fa": _verb_last(
        r"نادیده(?! نگ)|فراموش(?! ?ن)",
        r"دستور|قوانین|راهنما|فرمان",
        r"(?:همه|تمام|کلیه)\s?(?:ی\s)?",
        r"قبلی|پیشین|بالا|سیستم|داده شده",
    ),
    "he": _verb_first(
        r"\b(?:התעלם|התעלמי|תתעלם|שכח|תשכח)",
        r"(?:הוראות|ההוראות|הכללים|הנחיות|ההנחיות|פקודות)",
        r"(?:מכל|כל)\s",
        r"קודמ|שקיבל|מערכת|למעלה|עד כה",
    ),
    "hi": _verb_last(
        r"(?<!मत )(?<!न )(?:अनदेखा(?! न)|नज़रअंदाज़|नजरअंदाज|भूल|उपेक्षा)|न माने",
        r"निर्देश|नियम|आदेश|हिदायत",
        r"(?:पिछले|पहले|सभी|सारे|अब तक|सिस्टम|ऊपर|मिले|दिए|आपके|तुम्हारे)[^.!?।\n]{0,16}?",
        r"सभी|सारे",
    ),
    "bn": _verb_last(
        r"উপেক্ষা|ভুলে",
        r"নির্দেশ|নিয়ম",
        r"(?:আগের|পূর্ব|সব|সমস্ত|সকল)[^.!?।\n]{0,10}?",
        r"সব|সমস্ত",
    ),
    "th": _verb_first(
        r"(?:เพิกเฉย|ไม่ต้องสนใจ|ละเว้น|ลืม)",
        r"(?:คำสั่ง|คำแนะนำ|กฎ)",
        r"ทุก",
        r"ทั้งหมด|ก่อนหน้า|ที่ได้รับ|ระบบ|ข้างต้น",
    ),
    "el": _verb_first(
        r"(?:αγνόησε|αγνοήστε|ξέχασε|ξεχάστε)",
        r"(?:οδηγίες|εντολές|κανόνες)",
        r"όλ(?:ες|ους)\s(?:τις\s|τους\s)?",
        r"προηγούμεν|παραπάνω|που (?:σου|έλαβες)|συστήματος",
    ),
    "cs_sk": _verb_first(
        r"\b(?:ignoruj|zapome[ňn]|nedodr[žz]uj)",
        r"\b(?:pokyn|in[šs]trukc|pravidl)",
        _words(
            r"v[šs]etk\w{1,3}|v[šs]ech\w{1,3}|p[řr]edchoz\w{1,3}|predch\w{1,8}|"
            r"d[řr][íi]v[ěe]j[šs]\w{1,3}|sv[ée]|tv[ée]|tvoje"
        ),
        r"kter[ée] jsi|systému|systémov|v[ýy][šs]e|dosud",
    ),
    "ro": _verb_first(
        r"\b(?:ignor(?:ă|ați|a)|uit[ăa]|uitați)",
        r"(?:instruc[țţt]iuni|reguli|indica[țţt]ii)",
        r"\b(?:toate|orice)\s",
        r"anterioar|precedent|mai sus|sistem|primit",
    ),
    "hu": _verb_first(
        r"(?:hagyd figyelmen k[íi]v[üu]l|felejtsd el|ne k[öo]vesd)",
        r"(?:utas[íi]t[áa]s|szab[áa]ly)",
        _words(r"[öo]sszes|minden|kor[áa]bbi|el[őo]z[őo]|eddigi|kapott"),
        r"rendszer",
    ),
    "fi": _verb_first(
        r"\b(?:unohda|ohita|[äa]l[äa] noudata|j[äa]t[äa] huomiotta)",
        r"(?:ohjee|ohjei|s[äa][äa]nn|s[äa][äa]nt|m[äa][äa]r[äa]yks)",
        _words(r"kaikki|kaikkia|aiemmat|aiempia|edelliset|edellisi[äa]|annetut|saamasi"),
        r"j[äa]rjestelm",
    ),
    "sw": _verb_first(
        r"\b(?:puuza|sahau)\b",
        r"\b(?:maagizo|sheria|kanuni)",
        _words(r"zote|yote"),
        r"\b(?:yote|zote) ya|awali|mfumo",
    ),
}

RULES = (
    *(  # in the form that `views.visible` gives a text: Thai has another letter for its AM there
        Rule(language, "prompt_injection", "", unicodedata.normalize("NFKC", pattern), _view(language))
        for language, pattern in _DISREGARD.items()
    ),
    Rule(
        "hide_other_languages",
        "deception",
        "",
        r"(?:no|nunca|jam[áa]s) (?:se lo |le )?(?:digas|cuentes|menciones|reveles|informes)[^.!?\n]{0,30}usuario"
        r"|ne (?:le |la )?(?:dis|dites|mentionne[zr]?|r[ée]v[èe]le[zr]?"
        r"|parle[zr]?)[^.!?\n]{0,30}utilisat|n'en parle[zr]?[^.!?\n]{0,12}utilisat|(?:sage?|erz[äa]hle?"
        r"|verrate?|teile?|informiere?)[^.!?\n]{0,40}(?:benutzer|nutzer|anwender)(?!n|inn)[^.!?\n]{0,30}"
        r"(?:nicht|nichts|niemals)|(?:n[ãa]o|nunca) (?:diga|conte|mencione|revele|informe)[^.!?\n]{0,30}(?:usu[áa]rio"
        r"|utilizador)|non (?:dire|dirlo|rivelare|menzionare)[^.!?\n]{0,30}utente|не (?:говори|сообщай"
        r"|рассказывай|упоминай|кажи|розповідай)[^.!?\n]{0,30}(?:пользовател|користувач|юзер|человек)"
        r"|(?:不要|别|不得|切勿|不可|禁止)[^。\n]{0,6}?(?:告诉|告知|透露|通知|让|提及|提到|泄露)[^。\n]{0,8}(?:用户|使用者"
        r"|人类)|(?:向|对)?用户(?:隐瞒|隐藏|保密)|ユーザー?(?:に|には)[^。\n]{0,20}(?:言わ|知らせ|伝え|教え|話さ|明かさ|秘密|隠)"
        r"|사용자(?:에게|한테)[^.\n]{0,30}(?:말하지|알리지|숨기|비밀)|لا تخبر[^.\n]{0,20}المستخدم"
        r"|उपयोगकर्ता[^।\n]{0,20}(?:मत बता|न बता|छिपा)|kullan[ıi]c[ıi]ya[^.\n]{0,30}"
        r"(?:s[öo]yleme|bahsetme)|nie m[óo]w[^.\n]{0,30}u[żz]ytkownik|vertel[^.\n]{0,30}gebruiker[^.\n]{0,20}"
        r"niet|אל ת(?:ספר|גלה|אמר)[^.\n]{0,20}משתמש|đừng (?:nói|cho)[^.\n]{0,20}người dùng"
        r"|jangan (?:beri ?tahu|katakan|ceritakan)[^.\n]{0,20}pengguna",
        "visible",
    ),
    Rule(
        "unlimited_other_languages",
        "role_hijack",
        "",
        r"\b(?:asistente|assistente?|assistant|model[oe]?|modello|mod[èe]le|agente?)\b[^.\n]{0,20}?\b(?:sin|sem|senza"
        r"|sans) (?:\w{1,10} )?(?:restri|l[ií]mit|reglas|regras|regole|r[èe]gles|filtr|censur)|\b(?:assistent|ki"
        r"|modell?|agent)\b[^.\n]{0,20}?\b(?:ohne|zonder) (?:\w{1,10} )?(?:einschr[äa]nk|grenzen|regeln|filter"
        r"|zensur|beperking|regels)|(?:ассистент|помощник|помічник|асистент|модель|asystent)[^.\n]{0,20}?"
        r"(?:без|bez) (?:\w{1,10} )?(?:ограничен|обмежен|правил|фильтр|цензур|ogranicze|zasad|filtr)"
        r"|(?:没有|不受)(?:任何)?(?:限制|约束|规则)的?(?:助手|ai|模型|智能体|机器人)|(?:制限|制約|ルール)の?(?:ない|なし|無い)の?(?:ai"
        r"|アシスタント|モデル)|(?:제한|규칙|제약)\s?(?:이|이나)?\s?없는\s?(?:ai|인공지능|비서|어시스턴트|모델)"
        r"|(?:k[ıi]s[ıi]tlamas[ıi]z|s[ıi]n[ıi]rs[ıi]z) (?:bir )?(?:asistan|yapay zeka|model)"
        r"|مساعد[^.\n]{0,20}?(?:بلا|بدون) (?:أي )?(?:قيود|قواعد)|बिना किसी (?:रोक|प्रतिबंध|नियम)[^।\n]{0,12}?(?:सहायक"
        r"|असिस्टेंट|एआई)",
        "visible",
    ),
    Rule(
        "send_other_languages",
        "exfiltration",
        "",
        rf"(?:env[íi]a|enviar|env[íi]e|manda|sube|envoie|envoyez|transmets|sende|schicke|schick|[üu]bertrage"
        rf"|lade(?=[^\n]{{0,120}}\bhoch\b)|invia|inviare|mandare|envie|verstuur|stuur|wy[śs]lij|отправ|пришли|перешли"
        rf"|надішли|gönder|发送|上传|傳送|转发|发到|送信|送って|アップロード|보내|전송|업로드|أرسل|भेज|kirim|gửi)[^\n]{{0,60}}?"
        rf"{_SECRET}[^\n]{{0,80}}?{_PLACE}|{_SECRET}[^\n]{{0,60}}?(?:{_PLACE}[^\n]{{0,20}}?{_SENT}"
        rf"|{_SENT}[^\n]{{0,40}}?{_PLACE})",
        "visible",
    ),
)
