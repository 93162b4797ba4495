"""Rules on disguise: text that imitates the markup of a conversation, or hides from the person or in markup."""

from __future__ import annotations

from hermes_core.safety.patterns.rule import AGENT, G2, G4, G6, G9, PERSON, Rule

RULES = (
    # --- markup of a conversation
    Rule(
        "chat_template",
        "role_markup",
        "",
        r"<\|(?:im_start|start_header_id|start)\|>\s{0,3}(?:system|user|assistant|developer|tool)"
        r"|<\|(?:system|user|assistant|developer)\|>\s{0,3}\S{1,30} \S|\[inst\][\s\S]{1,400}?(?:\[/inst\]"
        r"|<<sys>>)|<<sys>>[\s\S]{1,400}?<</sys>>|<start_of_turn>\s{0,3}(?:user|model|system)|\[/?(?:system"
        r"|sys|available_tools|tool_results)\][^\w\n]{0,3}\w|<\|(?:endoftext|eot_id|end_of_turn|eom_id"
        r"|im_end|begin_of_text)\|>(?:\s{0,3}<\||\n\s{0,3}\w|[a-z\[#])|<(?:bos|s)>\s{0,2}\[inst\]",
    ),
    Rule(
        "turns",
        "role_markup",
        "human assistant user system ai",
        r"(?:^|\n)[ \t#*>]{0,4}(?:human|user)\**\s?:\**[^\n]{1,400}\n{1,3}[ \t#*>]{0,4}"
        r"(?:assistant|ai|bot|claude|model)\**\s?:|\n\n(?:human|assistant|system) ?: ?\S|(?:^"
        r"|\n)\s{0,3}(?:assistant|ai)\s?: [^\n]{1,400}\n{1,3}\s{0,3}(?:user|human)\s?:",
    ),
    Rule(
        "instruction_heading",
        "role_markup",
        "",
        r"(?:^|\n)\s{0,3}#{2,4} ?(?:system|instructions?|new instructions?|system (?:prompt"
        r"|message|override)|developer)(?: ?:|\s{0,2}\n)\s{0,3}\S|(?:^|\n)\s{0,3}(?:system"
        r"|developer|root) ?: ?(?:you|the assistant|ignore|from now|new|all|override|always"
        r"|never|the user|obey|disregard|execute|run|grant)",
    ),
    Rule(
        "fake_tags",
        "role_markup",
        "",
        r"<\s{0,3}/?\s{0,3}(?:memory[-_]context|system[-_](?:prompt|message|reminder|note|instructions?"
        r"|override)|developer[-_](?:message|prompt)|system|assistant|function_calls|function_results"
        r"|tool_(?:call|result|response|use)|user_(?:input|query|message)|end[-_]?of[-_]?(?:context"
        r"|memory|user|prompt|instructions)|instructions|im_start|antml:\w{1,20})\s{0,3}>\s"
        r"{0,2}(?:(?<=>)\w|(?<=\n)\S|\[)|</\s{0,3}(?:memory[-_]context|system[-_]?\w{0,12}|context"
        r"|memor(?:y|ies)|user_profile|documents?|data)\s{0,3}>\s{0,6}(?:\S{1,20}\s{1,3}){0,3}(?:system"
        r"|assistant|user|new|ignore|you|now|the|instructions?)",
    ),
    Rule(
        "system_note",
        "role_markup",
        "",
        r"[\[(*]{1,2}\s{0,3}(?:system|admin|developer|assistant|end of (?:memory|context|user"
        r"|system))[ _-]{0,2}(?:note|message|notice|instructions?|prompt|update|alert|command|directive"
        r"|override|memory|context)?\s{0,2}\d{0,3}[\])*:]{1,3}\s{0,3}(?:you|the|ignore|from|all|new|now"
        r"|this|always|never|user|assistant|obey|disregard|execute|run|grant|please|approve|treat)",
    ),
    Rule(
        "json_role",
        "role_markup",
        "",
        r"[\"']role[\"']\s{0,3}:\s{0,3}[\"'](?:system|developer)[\"']\s{0,3},\s{0,3}[\"']content[\"']\s"
        r"{0,3}:\s{0,3}[\"'\[]|[\"']content[\"']\s{0,3}:\s{0,3}[\"'][^\"']{0,300}[\"']\s{0,3},\s"
        r"{0,3}[\"']role[\"']\s{0,3}:\s{0,3}[\"'](?:system|developer)[\"']|\|\s{0,3}role: (?:system"
        r"|developer)|(?:^|\n)role: (?:system|developer)\s{0,3}\n\s{0,6}content:",
    ),
    # --- hiding
    Rule(
        "do_not_tell",
        "deception",
        "tell mention reveal inform disclose show say let notify talk admit report speak "
        "alert warn hint acknowledge discuss expose explain ask confess telling mentioning revealing informing "
        "disclosing showing letting notifying admitting alerting warning hinting acknowledging discussing exposing "
        "confessing talking",
        rf"\b(?:(?:do not|don't|dont|never|must not|mustn't|should not|shouldn't|may not|not to|cannot"
        rf"|no need to)\b(?: ever| to)?{G2}(?:tell|mention|reveal|inform|disclose|show (?:this|it|these"
        rf"|that|any of)|notify|admit|alert|warn|hint|acknowledge|discuss|expose|confess|talk|let on"
        rf"|let(?={G6}{PERSON}{G2}(?:know|see|notice|find|learn|hear|read|suspect)))|(?:without|avoid"
        rf"|never|refrain from|stop|rather than|instead of) (?:ever )?(?:telling|mentioning|revealing"
        rf"|informing|disclosing|showing (?:this|it|these|that|any of)|letting|notifying|admitting"
        rf"|alerting|warning|hinting|acknowledging|discussing|exposing|confessing|talking)){G6}{PERSON}\b",
    ),
    Rule(
        "keep_secret",
        "deception",
        "secret hidden private confidential quiet silent silently covert covertly conceal hide hidden "
        "invisible unaware unnoticed secretly quietly dark withhold cover stealth discreetly find know "
        "notice see told nothing mum silent leave informed aware learn realise realize discover suspect "
        "knowing noticing consent keep mask omit suppress obscure uninformed ignorant back",
        rf"\b(?:keep|hold|stay|remain|leave|make)\b{G6}(?:secret|hidden|private|confidential"
        rf"|quiet|invisible|unaware|in the dark|out of sight|concealed|unnoticed|between us"
        rf"|under wraps){G2}(?:from |about |to )?{PERSON}|\b(?:hide|conceal|withhold|obscure"
        rf"|mask|cover up|omit|suppress)s?\b{G9}from {G2}?{PERSON}|\b(?:hide|conceal"
        rf"|withhold)\b{G9}from (?:the |any |all |your )?(?:person|user|human|chat|log"
        rf"|reply|replies|output|operator|conversation|sight|audit|history)\b"
        rf"|\b{PERSON}\b{G2}(?:stays?|remains?|be kept) (?:unaware|in the dark|uninformed|ignorant)\b|\b{PERSON}\b (?:is|are) not to (?:be|get) (?:told|informed|notified|made aware)|\b{PERSON}\b{G2}(?:must|should|shall|may|can|need|will|does|do)(?: not|n't|n.t| "
        rf"never)(?: (?:to|be|ever|need|have|get|made)){{0,3}} (?:know|see|notice|find out"
        rf"|learn|be told|be informed|hear|be made aware|realise|realize|discover|suspect)|\b"
        rf"(?:secretly|covertly|silently|quietly|stealthily|discreetly)[^\w.,:]{{1,3}}(?:send|run"
        rf"|execute|upload|forward|copy|add|install|collect|record|log|insert|include|append"
        rf"|exfiltrate|change|modify|disable|fetch|transfer|report|monitor|track|store|delete"
        rf"|post|email)\b|\b(?:without|so that)\b{G4}{PERSON}{G4}(?:know(?:s|ing)?|notic(?:e"
        rf"|es|ing)|realis|realiz|seeing|aware|finding out|consent|noticing)|\bleave\b{G6}out "
        rf"of\b{G4}(?:summar(?:y|ies)|reports?|repl(?:y|ies)|logs?|answers?|transcripts?"
        rf"|history)\b|\b(?:keep|keeps|leave|make sure|ensure)\b{G4}{PERSON}\b{G6}(?:unaware|uninformed|in the dark|ignorant)\b"
        rf"|\bbehind {PERSON}(?:'s|s'|’s) back\b|\bsay nothing\b{G6}(?:to|in front of) {PERSON}|\btell {PERSON} "
        rf"nothing\b|\b(?:stay|keep|remain) (?:silent|quiet|mum)\b{G6}{PERSON}|\bkeep (?:this"
        rf"|it|these|that|everything)\b{G4}(?:away )?from {PERSON}|\bkeep (?:this|it|these"
        rf"|that)\b{G6}(?:secret|hidden|confidential|to yourself|between us|quiet)\b",
    ),
    Rule(
        "deny_it",
        "deception",
        "asks asked deny lie pretend claim denies admit trace mislead deceive trick gaslight manipulate",
        rf"\b(?:if|when(?:ever)?)\b{G4}(?:asks?|asked|questioned|confronted|inquires?"
        rf"|wonders?)\b[^.\n]{{0,60}}?\b(?:deny|lie|pretend|claim|say (?:that )?(?:(?:you|it|there) (?:\w{{1,6}}n['’]t|\w{{1,5}} (?:not|no|nothing|never)|never)|nothing|no)\b|answer (?:that )?(?:you|no)|change the (?:subject|topic)|act (?:as if"
        rf"|innocent|surprised|confused)|feign|do not admit|don't admit|make up|blame|refuse "
        rf"to (?:say|explain))\b|\b(?:deny|never admit|do not admit|don't admit)\b{G4}(?:this"
        rf"|having|knowing|that you|existence|you have|you received|any knowledge)|\blie "
        rf"to\b{G2}{PERSON}|\b(?:mislead|deceive|trick|gaslight|manipulate)\b{G2}{PERSON}"
        rf"|\b(?:leave|omit|strip|remove|scrub|delete|erase)\b{G6}(?:no traces?|traces?{G6}from (?:the |your )?(?:summar\w+|logs?|history|repl\w+|reports?|transcripts?)|traces"
        rf"|evidence|any mention|all mention|this step|tracks|from (?:the )?(?:logs?|history"
        rf"|summary|transcript|report|audit))",
    ),
    # --- hidden in markup
    Rule(
        "hidden_html",
        "hidden_markup",
        "",
        rf"(?:<[^<>]{{0,100}}(?:display\s{{0,2}}:\s{{0,2}}none|visibility\s{{0,2}}:\s{{0,2}}hidden"
        rf"|font-size\s{{0,2}}:\s{{0,2}}[01](?:px|pt|em|%)?(?![\d.])"
        rf"|opacity\s{{0,2}}:\s{{0,2}}0(?![.\d]*[1-9])|color\s{{0,2}}:\s{{0,2}}(?:white|transparent"
        rf"|#fff)|aria-hidden=.?true|\bhidden\b|(?:left|top|text-indent)\s{{0,2}}:\s{{0,2}}-\d{{3,}}"
        rf"|(?:height|width)\s{{0,2}}:\s{{0,2}}0)[^<>]{{0,100}}>|<!--|<noscript>|<template>|<details>"
        rf"|\[(?://|comment|_|\^\w{{1,10}})\]\s{{0,2}}:\s{{0,2}}(?:#|<>)?\s{{0,2}}[(\"']"
        rf"|\{{#|<%--|<svg[^>]{{0,80}}>\s{{0,3}}<(?:desc|title|text)>|<(?:img|a)[^>]{{0,80}}(?:alt"
        rf"|title)=[\"'])[^\n]{{0,200}}?(?:\b{AGENT}s?\b\s{{0,2}}(?:[:,]|must\b|shall\b|needs? to\b"
        rf"|instructions?:|please\b)|\b(?:note|attention|message|instructions?|dear|hey|hello|hi) (?:to "
        rf"|for )?(?:the |any |all |this )?(?:ai|assistants?|agents?|llms?|language models?|bots?"
        rf"|chatgpt|claude|hermes)\b|(?<![-\w@])(?:ignore (?:all|any|the|your|previous|prior|every|above"
        rf"|safety|what)\b|disregard|obey|execute|you (?:are|must|should|will)|approve (?:all|every"
        rf"|any)\b|exfiltrate|forward (?:the|all|every|this)\b|reveal|send (?:the|all|every|any|user"
        rf"|your|it)\b|upload (?:the|all|every)\b|run (?:the|this|`|curl|wget|rm|sh|bash|\./)|curl "
        rf"|wget |rm -rf|delete (?:all|every|the)\b|override (?:all|the|your|safety)|grant (?:all|admin"
        rf"|root|full)|do not tell|don't tell|without asking)(?!\w*-))",
    ),
    Rule(
        "image_beacon",
        "hidden_markup",
        "",
        r"!\[[^\]\n]{0,80}\]\(\s{0,2}https?://[^)\n]{0,200}[?&=/][^)\n]{0,80}(?:<[^)\n]{2,60}>"
        r"|\{[^)\n]{2,60}\}|\$\w|%s|\[[^)\n]{2,40}\]|\bsecret|\btoken=|conversation|user_?message"
        r"|last_?message|api_?key|history|base64)|<img[^>\n]{0,80}src=[\"']?https?://[^>\n]{0,120}(?:\{|<|\$"
        r"|%s|secret|token=|conversation|message|history|cookie)|\]\(\s{0,2}(?:javascript|data:text/html"
        r"|vbscript):|\[[^\]\n]{0,80}\]\(\s{0,2}https?://[^)\n]{0,120}[?&]\w{1,20}=(?:<[^)\n]{2,60}>"
        r"|\{[^)\n]{2,60}\})|\b(?:render|embed|include|insert|end|add|append|load|show"
        r"|display)\b[^.\n]{0,60}?\b(?:image|pixel|markdown|img|link"
        r"|url)\b[^\n]{0,60}?https?://[^\s]{0,80}[?&]?[^\n]{0,40}?\b(?:encoded|containing|with|plus"
        r"|followed by|set to|base64)\b[^.\n]{0,40}?\b(?:conversation|message|secret|history|key|token|reply"
        r"|summary|data|prompt|answer)",
    ),
    Rule(
        "script",
        "hidden_markup",
        "",
        r"<script\b[^>\n]{0,120}>[^<\n]{0,200}?(?:fetch\(|document\.cookie|localstorage|eval\("
        r"|https?://)|\bon(?:error|load|click)\s{0,2}=\s{0,2}[\"']?[^\"'\n]{0,80}(?:fetch\("
        r"|document\.|eval\(|location)|<(?:iframe|object|embed)[^>\n]{0,80}(?:src|data)=[\"']?"
        r"(?:https?:|javascript:|data:)[^>\n]{0,80}(?:style|width=.?[01]\b|hidden)",
    ),
)
