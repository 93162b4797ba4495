{% include ["client_" ~ cookiecutter.kind ~ ".py", "templates/client_" ~ cookiecutter.kind ~ ".py"] -%}
