/tmp/hello:
  file.managed:
    - contents: hello from {{ grains['id'] }}
