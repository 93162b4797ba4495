"""Words that the threat rules combine: lists of verbs, of objects and of particles, each named by its meaning."""

from __future__ import annotations

from hermes_core.safety.data_file import data_lines

WORDS = dict(line.split(" ", 1) for line in data_lines("threat_words.txt"))
"""The lists of `data/threat_words.txt`, which says how an entry is written."""

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
