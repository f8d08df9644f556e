"""Words that break careless quoting, for tests that nothing is changed on the way to a job."""

HOSTILE = [
    *("", " ", "a\nb", "\t", "\r", "\u2028", "\x85", "\x1b[0m", "line\nbreak\n", "\ttab", 'say "hi" it\'s', "'\"'"),
    *"two words ¦'¦\"¦'''¦\"\"\"¦$(touch pwned)¦`touch pwned`¦; touch pwned¦$HOME¦${HOME}¦$(HOME)".split("¦"),
    *"$$¦$¦$é¦$$(A)¦\\¦\\n¦\\n\\¦!x¦!history¦*¦*?[x]¦~¦-n¦--¦{job}¦{0}¦{run¦%s¦%d%%¦a;b|c&d>e¦&¦|¦#¦#not".split("¦"),
    *("off", "1e3", "null", "- a: b", "日本 é", "émoji 🧪 训练"),
]
