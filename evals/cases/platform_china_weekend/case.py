"""Four Chinese providers, four deaths of the data, asked in Chinese; one answer is that nobody wrote it down."""

from __future__ import annotations

from worlds import quiz, sheet

# a path may end in a slash or begin with ~; the return runs on the box and takes no id
PROFILE = {
    "恒源云_关机多少小时后清空hy-tmp": (24, r"powered off for (\d+) h \(pay-as-you-go\): /hy-tmp is emptied"),
    "恒源云_关机多少天后释放实例": (10, r"for (\d+) days: the instance is released"),
    "恒源云_个人数据的地址前缀": ("oss://", r'tier: personal data \(oss\), path: "([^"]+)"'),
    "恒源云_学术加速代理": (
        "http://turbo.gpushare.com:30000",
        r"accelerator is a proxy: `([^`]+)`",
        r"http://turbo\.gpushare\.com:30000/+",
    ),
    "矩池云_能只关机不释放": (False, r"矩池云 has no powered-off state at all"),
    "矩池云_释放后还在的目录": ("/mnt", r"tier: cloud drive, path: (/mnt), stop: kept", r"/mnt/+"),
    "矩池云_机器内自行释放要用的令牌环境变量": ("MATCLOUD_CANCELTOKEN", r"/proc/1/environ \| grep (\w+)\)"),
    "矩池云_机器内自行释放的程序": ("/public/script/matncli", r"&& (\S+/matncli) node cancel"),
    "featurize_归还88号实例的命令": (
        "featurize instance release",
        r"`([^`]+)` on the box; it takes no id",
        r"(?:.* )?featurize (?:.* )?instance release",
    ),
    "featurize_机器里shutdown之后还扣费": (True, r'stopped_still_bills: \{value: "everything: shutdown on the box'),
    "featurize_归还后还在的目录": (
        "/home/featurize/work",
        r"tier: cloud drive, path: (/home/featurize/work), stop: kept, destroy: kept",
        r"(?:~|/home/featurize)[/]work[/]*",
    ),
    "featurize_把6006端口发布出去的命令": ("featurize port export 6006", r"`featurize port export <port>`"),
    "featurize_最多能发布几个端口": (10, r"\(HTTP, at most ten\)"),
    "揽睿星舟_停止后数据盘怎么收费": ("unknown", r'lanrui: title: .*?stopped_still_bills: \{value: "?(unknown)\b'),
}
OLD = {
    "恒源云_关机多少天后释放实例": 15,
    "矩池云_能只关机不释放": True,
    "矩池云_机器内自行释放要用的令牌环境变量": "MATPOOL_TOKEN",
    "featurize_机器里shutdown之后还扣费": False,
    "揽睿星舟_停止后数据盘怎么收费": "按天计费",
}

CASE = sheet.case(
    {"profiles/china.md": PROFILE},
    OLD,
    route="which platform, what survives, what bills?",
    minutes=5,
    commands=10,
    make=quiz.note("机器.txt", "恒源云 4090 按量\n矩池云 A100\nFeaturize 88\n揽睿星舟 工作空间\n"),
    held_out=True,
    expected="Fourteen rules of four providers, and an honest unknown where no official text says it.",
)
