{%- from 'app/map.jinja' import app, names with context %}
{%- from 'app/libtofs.jinja' import files_switch with context %}
app-package:
  pkg.installed:
    - name: {{ app.package }}
{%- for i in range(80) %}
{%- set owner = app.users[i % 2] if app.users is defined else 'root' %}
app-file-{{ '%03d' | format(i) }}:
  file.managed:
    - name: /etc/app/conf.d/{{ i }}-{{ names[i % 5] | lower }}.conf
    - source: {{ files_switch(['conf.jinja', 'conf'], indent_width=8) }}
    - user: {{ owner }}
    - mode: '0644'
    - template: jinja
    - context: {{ {'n': i, 'port': app.port + i, 'name': names[loop.index0 % 5]} | json }}
    {%- if not loop.first %}
    - require:
      - file: app-file-{{ '%03d' | format(i - 1) }}
    {%- endif %}
{%- endfor %}
