"""Rules on instructions: text that tells the agent to disregard or reveal its instructions, or to play a role."""

from __future__ import annotations

from hermes_core.safety.patterns.rule import (
    BEFORE,
    DROP,
    DROP_NEEDS,
    G2,
    G4,
    G6,
    GIVER,
    NO_STOCK,
    NOT,
    ORDERS,
    Rule,
)

RULES = (
    # --- disregard what you were told
    Rule(
        "ignore_previous",
        "prompt_injection",
        DROP_NEEDS,
        rf"\b{NOT}{NO_STOCK}{DROP}\b(?:[^\w.!?;\n]{{1,4}}(?:all|any|every|each|of|the|your|you|my|these"
        rf"|those|this|that|its|and|or|\w{{0,3}}ll|other|completely|entirely|please|everything"
        rf"|in)){{0,5}}[^\w.!?;\n]{{1,4}}{BEFORE}(?:[^\w.!?;\n]{{1,4}}(?:and|or|system|developer|safety"
        rf"|user|prior|previous|ai|your|given|operating|behaviou?ral)){{0,3}}[^\w.!?;\n]{{1,4}}{ORDERS}\b",
    ),
    Rule(
        "ignore_given",
        "prompt_injection",
        DROP_NEEDS,
        rf"\b{NOT}{DROP}\b{G4}(?:{ORDERS}|everything|anything|whatever|all|what|things)"
        rf"(?:[^\w.!?;\n]{{1,4}}(?:that|which|the|a|an|your|its|of)){{0,3}}[^\w.!?;\n]{{1,4}}"
        rf"(?:you (?:were|have been|had been|got|received|are|ve been|have|was)(?: ever| "
        rf"previously| been)?(?: told| given| taught| instructed| trained| received| following"
        rf"| bound| under| set)?|above\b|before (?:this|now|that)|so far|{GIVER}(?: "
        rf"\w{{1,12}}){{0,2}} (?:gave|told|wrote|set|put|imposed|said|configured)|(?:i|we|they"
        rf"|he|she) (?:told|gave|said)|came before|preced|up to (?:now|here|this point)|until "
        rf"now|till now|imposed|came earlier|said (?:above|before|earlier)|from your (?:system"
        rf"|developer|training)|(?:were|was|had been|have been) (?:set|given|made|told|written|imposed) (?:before|earlier|above))",
    ),
    Rule(
        "ignore_yours",
        "prompt_injection",
        DROP_NEEDS,
        rf"\b{NOT}{DROP}\b(?:[^\w.!?;\n]{{1,4}}(?:all|any|every|each|of"
        rf"|the)){{0,3}}[^\w.!?;\n]{{1,4}}your (?:\w{{1,20}} ){{0,2}}(?:instructions?|guidelines?"
        rf"|guidance|rules|directives?|programming|restrictions?|training|safeguards?|guardrails?"
        rf"|system prompt|prompt|constraints?|polic(?:y|ies)|limits|limitations|principles|ethics)\b",
    ),
    Rule(
        "rules_are_void",
        "prompt_injection",
        "instructions instruction directions direction directives directive guidelines guideline guidance rules rule "
        "orders order prompts prompt policies policy constraints constraint restrictions restriction safeguards "
        "guardrails programming limitations told said training briefing principles",
        rf"\b(?:treat|regard|consider|see)\b{G4}{ORDERS}{G2}(?:as|to be){G2}(?:optional|suggestions?|advice"
        rf"|advisory|void|jokes?|noise|irrelevant|examples?)\b|\b(?:what|anything|everything|whatever"
        rf"|rules)\b{G2}{GIVER}\b[^.\n]{{0,60}}?\b(?:do|does) ?n[o']t (?:bind|apply|count|matter)|\b(?:your"
        rf"|all|any|those|these|every|previous|prior|preceding|earlier|above|former|initial|original|system"
        rf"|developer|safety)\b{G4}{ORDERS}{G6}(?:obsolete|void|null|cancell?ed|revoked|invalid|outdated"
        rf"|superseded|suspended|lifted|expired|no longer (?:appl(?:y|ies)|valid|bind|binding|count|matter"
        rf"|in (?:force|effect)|relevant|hold)|(?:do|does|did) ?n[o']t apply|never applied"
        rf"|replaced by (?:this|the following|what)|rescinded|repealed|withdrawn|overridden|overruled|stale"
        rf"|meaningless|were (?:only |just )?(?:a )?(?:test|fake|placeholder|drill|joke|decoy|simulation"
        rf"|suggestions)|can be (?:ignored|disregarded|skipped)|should be (?:ignored|disregarded|forgotten"
        rf"|discarded)|are to be (?:ignored|disregarded|discarded)|must be (?:ignored|disregarded|discarded)"
        rf"|ceases? to|stops? (?:counting|applying|binding))(?!\w)",
    ),
    Rule(
        "only_this_counts",
        "prompt_injection",
        "only sole guidance authority binding counts matters precedence priority supersedes "
        "overrides outranks replaces trumps supersede override outrank replace trump beats wins rank ranks",
        rf"\b(?:only|solely|just)\b{G6}(?:what(?:ever)? (?:is|comes|follows|stands)|this|the "
        rf"(?:following|text|note|lines?) |below){G6}(?:counts?|matters?|applies|is (?:valid"
        rf"|binding|true)|authorit|valid)|\byour (?:only|sole|single) (?:\w{{1,12}} )?"
        rf"(?:guidance|authority|rules?|instructions?|source|master|law"
        rf"|directives?)[^\w\n]{{1,3}}(?:is|are|comes?)\b|\b(?:treat|regard|consider|accept"
        rf"|take|see)\b{G4}(?:this|the following|below){G6}(?:only|sole|highest|supreme"
        rf"|ultimate|new|top|absolute|final|single|true|primary)[^\w.]{{1,4}}(?:\w{{1,20}} )?"
        rf"(?:authorit|instruction|rule|source|priority|directive|system|command|law|polic"
        rf"|prompt)|\b(?:this|the following)\b{G4}(?:entry|note|message|memory|text"
        rf"|instruction|rule|line|document|prompt)s?{G4}(?:supersedes?|overrides?|outranks?"
        rf"|takes? (?:precedence|priority)|replaces?|trumps?|ha(?:s|ve) (?:a |the )?(?:\w{{1,10}} )?(?:priority|precedence)|(?:ranks?|stands?) (?:above|higher)|beats?"
        rf"|wins? over){G6}(?:{ORDERS}|all|every|any|other|else|developer|system)",
    ),
    Rule(
        "pretend_absent",
        "prompt_injection",
        "pretend imagine assume act behave proceed continue",
        rf"\b(?:pretend|imagine|assume|act|behave|proceed|continue|respond|operate)\b{G4}(?:as (?:if|though)"
        rf"|that|like|there)(?:{G6})(?:{ORDERS}|prompt|safety|limits){G4}(?:never|not|didn|don|doesn|do|does"
        rf"|no|gone|vanish|absent|removed|isn|aren|wasn|were never|had never)|\b(?:pretend|imagine|act"
        rf"|behave|proceed|continue|respond|operate)\b{G4}as (?:if|though) no (?:\w{{1,12}} )?{ORDERS}\b",
    ),
    Rule(
        "start_over",
        "prompt_injection",
        "fresh scratch blank reset slate everything start new instructions",
        r"\b(?:forget|erase|wipe|clear|reset|discard|delete)\b"
        r"(?:[^\w.!?;\n]{1,4}\w{1,20}){0,3}[^\w.!?;\n]{1,4}(?:everything|all|context|memory"
        r"|instructions|conversation)\b[\s\S]{0,80}?\b(?:from (?:now|here|this point) on"
        r"|instead|start (?:over|fresh)|new (?:instructions?|rules?|task|orders?|directives?)"
        r"|only (?:what|this|the following)|below|follow (?:these|this|my))\b",
    ),
    Rule(
        "new_orders",
        "prompt_injection",
        "new real actual true updated revised replacement following",
        r"\b(?:your|the|here are(?: your)?) (?:new|real|actual|true|updated|revised|replacement"
        r"|only) (?:system )?(?:instructions?|directives?|orders|objectives?|goal|task|mission|rules|prompt"
        r"|purpose|master)\b[^\w\n]{0,3}(?:are|is|be|follow|now|:|=|to |from)|(?:^|[\n.!;:] ?)(?:new|updated"
        r"|revised|urgent|important|critical|priority) (?:system )?(?:instructions?|directives?|orders|rules"
        r"|prompt|polic(?:y|ies))(?: for (?:the )?(?:ai|assistant|agent|model))?\s{0,2}[:=-]",
    ),
    Rule(
        "compact",
        "prompt_injection",
        "",
        r"(?<!not)(?<!dont)(?<!never)(?:ignore|disregard|forget|override|bypass)(?:all|any|every|the|your|my|of|these"
        r"|those|ai+|al+){0,4}(?:previous|prior|preceding|earlier|above|system|prevlous|prev"
        r"|original)(?:and|or|system|your)?(?:instruct|guideline|rule|direct|command|prompt"
        r"|order|lnstruct)|youarenow(?:dan|unrestricted|jailbroken|evil|indevelopermode|free)|"
        r"(?:reveal|print|output|repeat)(?:me)?(?:yourfull|your|thefull)(?:system|hidden"
        r"|initial)prompt|(?:donot|dont|never)tellthe(?:user|human)|systempromptoverride|"
        r"(?:send|upload|post|exfiltrate|leak)(?:all|the|your|my|every){0,2}(?:secrets"
        r"|apikeys?|credentials|passwords|tokens|envvars|environmentvariables|keys)(?:to|via)",
        "letters",
    ),
    # --- another role
    Rule(
        "you_are_now",
        "role_hijack",
        "you",
        rf"\byou(?: are|'re| will be| shall be| become| will act as| must act as)(?: now| from now on"
        rf"| henceforth| no longer| hereby)?{G4}(?:unrestricted|uncensored|unfiltered|jail ?broken|unbound"
        rf"|unlimited|unaligned|evil|rogue|lawless|amoral|dan\b|developer mode|god mode|sudo mode|admin mode"
        rf"|root mode|debug mode|maintenance mode|free (?:of|from) (?:all |any |every )?(?:rules"
        rf"|restrictions|limits|constraints|guidelines|filters|polic)|without (?:any )?(?:rules|restrictions"
        rf"|limits|filters|constraints|guidelines)|not bound|no longer (?:bound|restricted|limited|an? (?:ai"
        rf"|assistant|language model))|above (?:the|all) (?:law|rules))",
    ),
    Rule(
        "you_are_now_a",
        "role_hijack",
        "now henceforth",
        rf"\b(?:you are now|you're now|from now on,? you(?: are|'re| will be| act| must| will| shall)?"
        rf"|henceforth,? you(?: are)?|you are henceforth){G4}(?:(?:ai|assistant|model|bot|chatbot|agent"
        rf"|hacker|pirate|character|persona|shell|terminal|root|superuser)\b(?! (?:for|of|on"
        rf"|in) the (?:team|project))|(?:obey|serve|report to|follow only|answer only|take orders))",
    ),
    Rule(
        "act_without_limits",
        "role_hijack",
        "act pretend roleplay role behave answer respond reply operate simulate be speak impersonate become assume adopt",
        rf"\b(?:act|pretend|role-?play|behave|answer|respond|reply|operate|simulate|speak|impersonate|be"
        rf"|become|assume|adopt)\b{G6}(?:unrestricted|uncensored|unfiltered|jail ?broken|evil|amoral|dan\b"
        rf"|do anything now|never refuses?|cannot refuse|can't refuse|refuses nothing|always compl(?:y|ies)"
        rf"|without (?:any |all |your |ethical |moral |content |safety ){{0,3}}(?:rules|restrictions|limits"
        rf"|limitations|filters?|censorship|guidelines|ethics|morals|safeguards|guardrails|refus\w*)"
        rf"|no (?:rules|restrictions|limits|filters?|ethics|guidelines|guardrails|morals)|free (?:of"
        rf"|from) (?:\w{{1,12}} )?(?:rules|restrictions|filters)|(?:not|un|no longer )[ -]?bound by (?:any"
        rf"|its|the|no|\w{{1,12}}) ?(?:rules?|polic\w+|guidelines|limits|restrictions|ethics))",
    ),
    Rule(
        "lift_limits",
        "role_hijack",
        "disable enable enter activate engage switch turn circumvent evade suspend strip "
        "remove lift deactivate drop without bypass off unlock jailbreak refuse refusals limits rules "
        "refusal filters restrictions mode",
        rf"\b(?:disable|remove|lift|deactivate|switch off|turn off|unlock|circumvent|evade|suspend"
        rf"|strip)\b{G4}(?:(?:safety|content|ethical|moral|security|ai) (?:filters?|polic(?:y|ies)"
        rf"|guidelines?|checks?|restrictions?|rules|measures|limits|training|protocols?|mechanisms?)"
        rf"|(?:your|all|any) (?:\w{{1,12}} )?(?:restrictions|filters|guardrails|limitations|safeguards"
        rf"|safety|inhibitions|censorship))|\b(?:never|don't|do not|no longer|must not|cannot"
        rf"|may not) (?:ever )?refuse\b|\brefusals? (?:are|is) (?:forbidden|disabled|prohibited|off"
        rf"|not allowed|banned)|\b(?:you have|you face|you know) no (?:rules|restrictions|limits"
        rf"|limitations|filters|guidelines|boundaries|ethic\w*)|\b(?:enter|enable|activate"
        rf"|switch (?:in)?to|engage) (?:\w{{1,12}} )?(?:dan|god|jailbreak|unrestricted|evil|chaos"
        rf"|(?:developer|sudo|admin|root)(?= mode\b(?!\s(?:on|in|for|by|at|only|with)\b))) mode\b"
        rf"|\bdo anything now\b|\bact as (?:the |an? )?(?:root|superuser|sysadmin|god)\b",
    ),
    Rule(
        "new_identity",
        "role_hijack",
        "name identity persona true forget longer",
        r"\byour (?:true|real|new|actual|secret) (?:name|identity|self|persona|purpose|role"
        r"|master|owner|loyalty|allegiance)\b[^\w\n]{0,3}(?:is|are|lies|belongs|will be|:)"
        r"|\byou (?:are|re) no longer (?:\w{1,15} ){0,3}(?:assistant|ai|model|bound|claude"
        r"|chatgpt|gpt|hermes|agent|restricted)|\b(?:forget|abandon|drop) (?:that )?(?:you are"
        r"|your) (?:an? )?(?:ai|assistant|identity|persona|language model|role|character)",
    ),
    Rule(
        "new_rules_given",
        "role_hijack",
        "updated upgraded reprogrammed patched granted reset",
        rf"\byou (?:have been|were|are|ve been)(?: now)? (?:updated|upgraded|reprogrammed"
        rf"|patched|reset|reconfigured|granted|given|authori[sz]ed|unlocked|freed"
        rf"|liberated){G6}(?:new (?:rules|instructions|directives|polic|identity|persona"
        rf"|master|system prompt)|full (?:access|control|permission|authority)|unrestricted|no "
        rf"(?:restrictions|limits)|root|admin(?:istrator)? (?:access|rights|mode|privileges)"
        rf"|without (?:asking|confirmation|approval)|restrictions (?:are|were|have)|filters?)",
    ),
    # --- claims over the system prompt
    Rule(
        "system_override",
        "system_override",
        "override overrides system admin developer root",
        r"\b(?:system|admin(?:istrator)?|developer|root|security|policy|safety|operator"
        r"|instruction) (?:prompt |message |level |instruction )?(?:override|bypass"
        r"|overrule)\b(?!n?['\w-]| (?:file|flag|option|setting|in |for |env|variable|key|via))"
        r"|\boverrid(?:e|es|ing) (?:the |your |all |any |every ){0,2}(?:\w{1,12} )?(?:system (?:prompt"
        r"|message|instructions?|rules)|safety (?:rules|polic\w+|guidelines|settings|training)"
        r"|developer (?:message|prompt|instructions?)|core (?:rules|instructions|directives))",
    ),
    Rule(
        "replace_system_prompt",
        "system_override",
        "prompt instructions instruction message command order authority",
        rf"\b(?:replace|rewrite|overwrite|change|modify|amend|swap|update|extend|treat)\b{G4}"
        rf"(?:your|the (?:agent|assistant|ai|model)'?s?) (?:\w{{1,12}} )?(?:system prompt"
        rf"|system message|system instructions|core instructions|base prompt|initial prompt)\b"
        rf"|\b(?:system prompt|system message|developer message)\b{G4}(?:is|has been|was"
        rf"|shall be|must be) (?:now |hereby )?(?:replaced|overridden|updated|superseded|void"
        rf"|changed|obsolete|cancell?ed|disabled|revoked|rewritten|amended)|\btreat\b{G6}(?:as"
        rf"|like) (?:\w{{1,12}} ){{0,3}}(?:system|developer|operator|root|admin)[ -](?:level "
        rf"|priority )?(?:prompt|message|instructions?|command|order|authority)",
    ),
    Rule(
        "obey_this",
        "system_override",
        "obey obeys comply",
        rf"\b(?:assistant|agent|ai|model|you)\b{G4}(?:obeys?|must obey|shall obey|will obey"
        rf"|always obeys?)\b{G4}(?:this|these|the following|only|every|all|any|whatever|me\b)"
        rf"|\band obey\b{G2}(?:this|these|the|me|it|only)|\bobey (?:this|these|the following"
        rf"|only|me|every|all|whatever|any|\w{{1,20}} instead of)\b",
    ),
    # --- leaking the prompt
    Rule(
        "leak_prompt",
        "prompt_leak",
        "prompt instructions rules message guidelines configuration directives context",
        rf"\b{NOT}(?:output(?! of)|print|repeat|reveal|show|display|dump|recite|copy|paste|write out"
        rf"|write down|translate|summari[sz]e|echo|return|give|tell|leak|share|quote|reproduce|disclose"
        rf"|expose|include|spell out|list|send|encode|provide|state|post|append|prepend|start|quoting"
        rf"|repeating|printing|revealing|pasting|reciting|listing|outputting|showing|sharing)\b{G6}(?:your"
        rf"|hidden|secret|internal|entire|full|complete|exact|original|initial|verbatim|whole"
        rf"|confidential) (?:\w{{1,14}} ){{0,2}}(?:prompts?|instructions|system message|rules|guidelines"
        rf"|directives|configuration|pre-?prompt|developer message|context window)\b(?! experiment| tests?"
        rf"| file| template| version)|\b(?:output(?! of)|print|repeat|reveal|recite|dump|paste|quote|echo"
        rf"|leak|reproduce|disclose|spell out|copy|include|show|return|display|append)\b{G4}(?:the "
        rf"|this )?(?:system|developer|hidden|initial) (?:prompt|message|instructions){G6}(?:verbatim"
        rf"|word for word|exactly|in full|as is|unchanged|at the (?:start|end|top|beginning|bottom)"
        rf"|in (?:each|every|your|the next|all)|before (?:each|every|any|you)|to (?:me|the user|whoever"
        rf"|anyone)|when(?:ever)? asked|on request|completely|letter by letter|character by character|base64"
        rf"|in a code block|https?:)|\bwhat (?:does|do) your (?:system )?(?:prompt|instructions) say\b"
        rf"|\b(?:what (?:is|are|was|were)|tell me|show me) your (?:system prompt|(?:initial|original|hidden"
        rf"|exact|system) instructions)",
    ),
    Rule(
        "text_above",
        "prompt_leak",
        "above preceding before previous beginning",
        rf"\b(?:repeat|print|output|copy|paste|recite|reproduce|echo|quote|write|display|return|show"
        rf"|translate|encode|summari[sz]e|dump|reveal)\b{G4}(?:the (?:text|words?|content|lines?"
        rf"|messages?|prompt|paragraphs?|sentences?|instructions?)|everything"
        rf"|all(?: of)?(?: the)?(?: text| words)?|whatever|what (?:is|was|comes|came|you (?:see|read"
        rf"|were))){G4}(?:above|before (?:this|that|the)|preceding|prior to|earlier|so far"
        rf"|from the (?:start|beginning|top)|at the (?:top|start|beginning)|starting (?:with|from))",
    ),
)
