"""Constants."""

NOT_SET = "__unset__"
