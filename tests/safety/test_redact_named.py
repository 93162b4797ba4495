"""Secrets that only their names give away, in the ways that people, programs and files write them."""

from __future__ import annotations

import json
import re
import textwrap
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.safety.redact import redact, redact_value
from tests.rounds import rounds
from tests.table import table

ADDRESS = "https://ann:hunter22@db.example.com"


def said_and_left(marked: str) -> tuple[str, str]:
    """What is redacted of a text of which the secrets stand in ⟦⟧, and what must come out, with ⟦⟧ for each."""
    found = redact(re.sub("[⟦⟧]", "", marked))
    return re.sub(r"\[redacted:\w+\]", "⟦⟧", found), re.sub("⟦.*?⟧", "⟦⟧", marked)


SENTENCES = [
    "my password is ⟦hunter22⟧",
    "My password is ⟦hunter2⟧.",
    "the password: ⟦hunter22⟧",
    "the password for the wifi is ⟦hunter22⟧, I think",
    "the wifi password for the guest network: ⟦hunter22⟧",
    "I changed my password to ⟦hunter22⟧ today",
    "the password is now ⟦hunter22⟧",
    "the password for the NAS was changed to ⟦hunter22⟧ yesterday",
    "the password has been reset to ⟦hunter22⟧",
    "my API key ⟦abc123def456abc123def456⟧ stopped working",
    "use the token `⟦abc123def456abc123def456⟧`",
    "mein Passwort ist ⟦hunter22⟧",
    "log in as ann with password ⟦hunter22⟧",
    'my password is "⟦correct horse battery⟧"',
    "my password is `⟦hunter⟧`",
    "the password is “⟦hunter⟧”",
    "**Password:** ⟦hunter22⟧",
    "the API key is ⟦abc123def456⟧",
    "API key: ⟦abc123def456⟧",
    "password: api_key='⟦hunter⟧'",
]
PASSWORDS_ABROAD = [
    "lösenord: ⟦katt1234⟧",
    "passord = ⟦katt1234⟧",
    "adgangskode: ⟦kat1234⟧",
    "salasana: ⟦Kissa123⟧",
    "heslo: ⟦kocka123⟧",
    "парола: ⟦kotka123⟧",
    "lozinka: ⟦macka123⟧",
    "jelszó: ⟦macska12⟧",
    "parolă: ⟦pisica12⟧",
    "κωδικός πρόσβασης: ⟦gata1234⟧",
    "şifre: ⟦kedi1234⟧",
    "كلمة المرور: ⟦qitta123⟧",
    "رمز عبور: ⟦gorbe123⟧",
    "סיסמה: ⟦hatul123⟧",
    "पासवर्ड: ⟦billi123⟧",
    "kata sandi: ⟦kucing12⟧",
    "mật khẩu: ⟦meo12345⟧",
    "รหัสผ่าน: ⟦maew1234⟧",
]
CODE = [
    "if password == other_password:",
    "password = get_password(user)",
    'password = request.form["password"]',
    "password = user.password",
    "self.password = password",
    "api_key = settings_key",
    "token = Whitespace",
    "call(api_key=api_key, credentials=default_credentials)",
    '{"pass": 12, "fail": 3}',
    '{"user": "ann", "pass": "⟦hunter2go⟧"}',
    "password=⟦swordfish⟧",
    "password=⟦correct_horse⟧",
    "assert token == ⟦abc123def456⟧",
]
COMMANDS = [
    "tool --password ⟦hunter22⟧ --verbose",
    "tool --password '⟦correct horse⟧'",
    "tool --auth-token ⟦abc123def456⟧",
    "mysql -u root -p⟦hunter⟧ shop",
    "mysqldump -uroot -p'⟦correct horse⟧' shop",
    "sshpass -p ⟦hunter⟧ ssh ann@db",
    "docker login -u ann -p ⟦hunter⟧ registry.example.com",
    "redis-cli -h db -a ⟦hunter⟧ ping",
    "curl -u ann:⟦hunter⟧ https://db.example.com",
    "curl https://db.example.com --user 'ann:⟦correct horse⟧'",
    "machine db.example.com login ann password ⟦hunter⟧",
    "machine db.example.com\n  login ann\n  password ⟦hunter⟧\n",
]
FILES = [
    "export DB_PASS=⟦hunter⟧",
    "spring.datasource.password=⟦hunter⟧",
    "db.pass=⟦hunter2x⟧\nsmtp-pass: ⟦hunter2x⟧",
    "app.auth-key: ⟦abc123def456⟧",
    "{'sessionToken': b'⟦abc123def⟧'}",
    "https://x.example/?X-Amz-Signature=⟦0123456789abcdef⟧&X-Amz-Security-Token=⟦abc123def456⟧",
    "https://x.example/cb?code=⟦4f0a9b8c7d6e5f4a3b2c⟧&state=1#jwt=⟦abc123def456ghi789⟧",
    "secret_key_base: ⟦0123456789abcdef0123456789abcdef⟧",
    "smtp_pass: ⟦hunter22⟧",
    '{"db_pass": "⟦hunter⟧"}',
    "Cookie: sid=⟦abc123def456abc123def456⟧; theme=dark; csrf=⟦def456abc123def456abc123⟧",
    "curl -H 'cookie: sid=⟦abc123def456abc123def456⟧' https://db.example.com",
    "Set-Cookie: sid=⟦abc123def456abc123def456⟧; Path=/; Max-Age=31536000",
    "<server><username>ann</username><password>⟦hunter⟧</password></server>",
    '<db:Password type="x"> ⟦hunter⟧ </db:Password>',
    "<password><![CDATA[⟦hunter⟧]]></password>",
    '<user name="ann" password="⟦hunter⟧"/>',
    '<add key="DbPassword" value="⟦hunter⟧"/>',
    '<property name="connection.password">⟦hunter⟧</property>',
    '<input type="password" name="x" value="⟦hunter⟧">',
    '{"password": ⟦12345678⟧}',
    '{"tokens": ["⟦abc123def456⟧", "⟦def456abc123⟧"]}',
    '{"name": "DB_PASSWORD", "value": "⟦hunter⟧"}',
    "- name: DB_PASSWORD\n  value: ⟦hunter22⟧",
    "db:\n  password:\n    - ⟦hunter22⟧\n    - ⟦hunter33⟧\n  port: 54321",
    "credentials:\n  user: ann12345\n  main: ⟦abc123def456⟧\nother: abc123def456",
    "[passwords]\nann = ⟦hunter22⟧\nbob = ⟦hunter33⟧\n[other]\nname = hunter44\n",
]
SENTENCES_ABROAD = [
    "mein Kennwort lautet ⟦Hund3huett3⟧.",
    "le mot de passe du wifi est ⟦Ch4teau!Bleu⟧",
    "la contraseña es ⟦Gat0Negro99⟧, creo",
    "a senha do wifi é ⟦C4sa#Azul12⟧",
    "パスワードは⟦Sakura2024⟧です",
    "密码是⟦Xiaomao88⟧",
    "пароль от роутера: ⟦Zima2024qq⟧",
    "비밀번호는 ⟦Namu2024⟧ 입니다",
    "şifre ⟦Kedi2024⟧ olarak değişti",
    "la password del router è ⟦R0uter#Casa⟧",
    "hasło to ⟦Kot3k!2024⟧",
    "lösenordet är ⟦katt1234⟧",
    "كلمة المرور هي ⟦qitta123⟧",
    "पासवर्ड ⟦billi123⟧ है",
]
ABROAD = [
    "passwort: ⟦hunter22⟧",
    "Kennwort = ⟦geheim⟧",
    "API-Schlüssel: ⟦abc123def456⟧",
    "mot de passe : ⟦hunter22⟧",
    "clé API : ⟦abc123def456⟧",
    "contraseña: ⟦hunter22⟧",
    "contrasen\u0303a: ⟦hunter22⟧",
    "DB_SENHA=⟦hunter⟧",
    "chave da API: ⟦abc123def456⟧",
    "parola d'ordine: ⟦hunter22⟧",
    "wachtwoord: ⟦hunter22⟧",
    "hasło: ⟦hunter22⟧",
    "Пароль: ⟦hunter22⟧",
    "密码：⟦abc12345⟧",
    "数据库密码: ⟦abc12345⟧",
    "パスワード：「⟦abc12345⟧」",
    "비밀번호: ⟦abc12345⟧",
    "password：⟦abc12345⟧",
]


MARKED = [*SENTENCES, *COMMANDS, *FILES, *ABROAD, *SENTENCES_ABROAD, *PASSWORDS_ABROAD, *CODE]


@table("marked", MARKED)
def test_a_secret_that_only_its_name_gives_away_is_taken_out_and_nothing_else(marked: str) -> None:
    found, wanted = said_and_left(marked)
    assert found == wanted


@table(
    "text",
    [
        "password is required; the password is too short; the password 'must' be long",
        "my password is stored in 1Password and the token is base64-encoded",
        "the password was changed 2023-05-04 and is sha256-hashed, 12characters",
        "give the password to bob1990x",
        "I forgot my password. The commit is 1fd4393a8e",
        "the token count is 12000tokens",
        "mysql -p shop2024; mysql -P 3306; ls -p folder99; curl -u $USER:$PASS x",
        "tool --password PASSWORD --token <token>, use --token to give it",
        '{"tokens": ["the", "quick"], "max_tokens": 128000}, "input_tokens": 123456789',
        "<token>the</token><label>Password</label><input type='password' value=''>",
        "password:\n  type: string\n  minLength: 12",
        "secrets:\n  created_at: 2023-01-01T00\n  user: ann12345",
        "clave=valor, key: value, der Schlüssel: liegt unter der Matte, l'enclave=abc123def456",
        "密码：请在这里输入",
        "kpasswd 464/tcp",
        "das Kennwort ändert man in Version 12, el 2024-05-04 la contraseña vence, 密码至少12位, le mot de passe expire dans 90 jours",
        "$token = m::mock(); $secret = Passport::$hashes ? 1 : 2; self::token = self::KEYS.'/oauth-private.key'",
        "let token = RsaPrivateKey::from_pkcs1_der(key); let password = crypto::hmac_sign(&data.sk, x)",
        "password := *params.Password; let has_password = !user.password_hash.is_empty(); password = ::BCrypt::Engine.hash(x)",
        "Token:  crypto.SecureAlphanumeric(12), nonceSecret: Buffer.alloc(32, 0), secret: randomBytes(32),",
        'signingKey: defaultES256PrivateKey, pub credential: CredentialV3, "credential": json.RawMessage(cred1.JSON),',
        "token = goauth.Token{AccessToken: t}, Credentials = aws.AnonymousCredentials{}",
        'invalid_token = token_2_payload + "." + token_1_sig',
        "confirmation_token = @raw_confirmation_token = friendly_token",
        'password = "#{password}#{klass.pepper}"; url "/x?confirmation_token=#{user.raw_token}"',
        'token = "Bearer " + value; authorization: `Bearer ${params.token}`',
        '"Authorization": s.authorizationHeader, HTTP_AUTHORIZATION=auth_header); const authorization = getAuthorization(this)',
        '{"access_key": `+strconv.Quote(value)+`}, "driveAccessToken": "access_token={access_token}"',
        'no_token: "You need the link of a password reset", "Invalid Email or password" => "Invalid email or password"',
        'const TOKEN = /^[A-Za-z0-9._~-]+$/; if password == "INTERNAL" {',
        '<h2>Your password was changed</h2><h4 id="password">--filen-password</h4>',
        'rpassword = "7.5.4"; io.jsonwebtoken:jjwt-jackson:0.11.0; strip secrets GHSA-8mxv-9xhp-86h4',
        'fetch(url, {credentials: "same-origin"}); fetch(`${BASE}/hub?token=admin-diagnostics`).catch(() => false)',
        "key = 'file://' . __DIR__; private_key = 'file://' . __DIR__; x = {refresh_token: refresh_token1}, credentials=r2_credentials or None",
        "{Authorization: authHeader}, def has(authorization: Authorization): Boolean; autoToken = /\\s?auto?\\s?/i; API_KEY='sk-...'",
        "the Authorization: header; OAuth and Authorization: https://www.example.com/rails-auth",
        "token, value = get_token(value)",
        "token: LoopToken = threading.current_token",
        "use `?api_key=`, or `token=`",
        '{"input_token": "NextToken", "output_token": "nextToken", "api_key": "OPENAI_API_KEY", "secret": "client_secret"}',
        "first_pass=completed, n_pass = 120000, {'tests_pass': 1520}, passed=120, first pass 12of12, bypass abc123def456, PASS test_redact12",
        "the token docs/reference/keys2.md; the token id_of_the_first_user_2; cookie: theme=dark",
    ],
)
def test_a_value_that_only_stands_beside_a_name_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("before", ["", "  "])
def test_the_mark_of_a_secret_is_no_heading_of_a_section(before: str) -> None:
    text = f"{before}[redacted:token]\nbuild = abc123def456\n"
    assert redact(text) == text


@table("marked", MARKED)
def test_the_arguments_of_a_tool_are_read_as_the_json_that_they_are(marked: str) -> None:
    said = re.sub("[⟦⟧]", "", marked)
    arguments = json.dumps({"path": "é", "content": said, "more": [json.dumps({"command": said})]})
    sent = redact_value({"function": {"name": "write", "arguments": arguments}})["function"]["arguments"]
    told = json.loads(sent)
    assert [told["content"], json.loads(told["more"][0])["command"]] == [redact(said)] * 2
    assert redact_value(sent) == sent


@pytest.mark.parametrize(
    "text", ['{"a": "\\n"} and more', '["\\"', "[" * 5000 + '"\\n"' + "]" * 5000, '{"a": "\\ud800 é"}']
)
def test_text_that_only_looks_like_json_stays(text: str) -> None:
    assert redact_value(text) == text


@pytest.mark.parametrize("marked", [case for case in MARKED if "\n" in case])
def test_files_with_crlf_and_indented_files_are_read_alike(marked: str) -> None:
    for text in (marked.replace("\n", "\r\n"), textwrap.indent(marked, "    "), f"\ufeff{marked}"):
        found, wanted = said_and_left(text)
        assert found == wanted


def test_json_values_of_any_type_under_a_secrets_name_are_redacted() -> None:
    value = {
        "password": 12345678,
        "tokens": ["abc123def456", "word"],
        "secrets": {"db": "hunter22a", "user": "ann12345"},
        "env": [{"name": "DB_PASSWORD", "value": "hunter"}],
        "passwort": "hunter",
        "max_tokens": 128000,
        "token": True,
        "output_token": "NextToken",
        "password_schema": {"type": "string"},
    }
    assert redact_value(value) == {
        "password": "[redacted:password]",
        "tokens": ["[redacted:token]", "word"],
        "secrets": {"db": "[redacted:secret]", "user": "ann12345"},
        "env": [{"name": "DB_PASSWORD", "value": "[redacted:password]"}],
        "passwort": "[redacted:password]",
        "max_tokens": 128000,
        "token": True,
        "output_token": "NextToken",
        "password_schema": {"type": "string"},
    }
    assert redact_value({"password": "my_password"}) == {
        "password": "[redacted:password]"
    }  # made up by a person


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["hunter22", "abc123def456", ADDRESS]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "value", "password", "tokens", "user", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_can_be_redacted_and_a_second_time_changes_nothing(value: Any) -> None:
    once = redact_value(value)
    assert redact_value(once) == once
    assert ADDRESS not in json.dumps(once)


TELLING = [
    *(re.sub("[⟦⟧]", "", one) for one in (*SENTENCES, *COMMANDS, *FILES, *ABROAD)),
    *(
        "password",
        "passwords",
        "token",
        "密码",
        "clave",
        "[redacted:password]",
        "[redacted:token]",
        "https://",
    ),
    *("curl -u a:", "mysql ", "machine a login b "),
]
OTHER = [
    *(
        " is ",
        ": ",
        "=",
        "：",
        " ",
        "\n",
        "\n  ",
        '"',
        "'",
        "`",
        "[",
        "]",
        "<",
        ">",
        "</",
        "value=",
        " -p",
        "--",
        "@",
    ),
    *("hunter22", "abc123def456", "12345678", "set "),
]
PIECES = [*TELLING, *OTHER]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=10))
def test_redacting_twice_is_redacting_once(pieces: list[str]) -> None:
    once = redact("".join(pieces))
    assert redact(once) == once


@given(st.lists(st.sampled_from(OTHER) | st.text(max_size=6), max_size=10))
def test_a_text_without_names_programs_and_addresses_stays(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert redact(text) == text


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3))
@settings(max_examples=rounds(10))
def test_four_times_the_text_takes_about_four_times_the_work(pieces: list[str]) -> None:
    unit = "".join(pieces)
    short, long = (_seconds((unit * (size // len(unit) + 1))[:size]) for size in (8192, 32768))
    assert long < 0.02 or long / short < 10  # 16 were it quadratic


def _seconds(text: str) -> float:
    """CPU time of this thread, the least of three; a text of this length is not remembered."""
    times = []
    for _ in range(3):
        start = time.thread_time()
        redact(text)
        times.append(time.thread_time() - start)
    return min(times)
