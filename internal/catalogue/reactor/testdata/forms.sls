zeta:
  local.cmd.run:
    - tgt: 'web*'
    - args:
      - cmd: rm -rf /tmp/x
      - cwd: /
by_arg:
  local.test.arg:
    - tgt: G@role:db
    - tgt_type: compound
    - arg: [1, two]
    - kwarg: {a: b}
    - ret: syslog
split:
  local:
    - test.ping
    - tgt: [a, b]
    - tgt_type: list
former:
  cmd.test.version:
    - tgt: '*'
args_map:
  runner.test.arg:
    - args: {x: 1, y: [2]}
beside:
  runner.jobs.lookup_jid:
    - jid: "20260101000000000000"
named:
  wheel.key.accept:
    - args:
      - match: new1
last_of_all:
  runner.test.arg:
    - order: last
    - args: {n: last}
first_of_all:
  runner.test.arg:
    - order: first
    - args: {n: first}
several:
  local.test.echo:
    - order: 90
    - names: [n1, n2]
    - tgt: x
    - arg: [hi]
two_forms:
  wheel.key.list_all: []
  runner.manage.up: []
