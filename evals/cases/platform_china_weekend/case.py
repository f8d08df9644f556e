"""Four Chinese providers, four deaths of the data, asked in Chinese; one answer is that nobody wrote it down."""

from __future__ import annotations

from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

TRUTH: dict[str, Any] = {
    "恒源云_关机多少小时后清空hy-tmp": 24,
    "恒源云_关机多少天后释放实例": 10,
    "恒源云_个人数据的地址前缀": "oss://",
    "恒源云_学术加速代理": "http://turbo.gpushare.com:30000",
    "矩池云_能只关机不释放": False,
    "矩池云_释放后还在的目录": "/mnt",
    "矩池云_机器内自行释放要用的令牌环境变量": "MATCLOUD_CANCELTOKEN",
    "矩池云_机器内自行释放的程序": "/public/script/matncli",
    "featurize_归还88号实例的命令": "featurize instance release",
    "featurize_机器里shutdown之后还扣费": True,
    "featurize_归还后还在的目录": "/home/featurize/work",
    "featurize_把6006端口发布出去的命令": "featurize port export 6006",
    "featurize_最多能发布几个端口": 10,
    "揽睿星舟_停止后数据盘怎么收费": "unknown",
}


def look_up(box: Box) -> dict[str, Any]:
    every = facts.Profile(box, "china")
    gpushare, matpool, featurize, lanrui = (
        facts.Profile(box, "china", name) for name in ("gpushare", "matpool", "featurize", "lanrui")
    )
    export = every.word((), r"`(featurize port export <port>)`")
    release = matpool.value("verbs", "down")
    return {
        "恒源云_关机多少小时后清空hy-tmp": gpushare.number(("auto_release",), r"for (\d+) h"),
        "恒源云_关机多少天后释放实例": gpushare.number(("auto_release",), r"for (\d+) days"),
        "恒源云_个人数据的地址前缀": gpushare.storage("personal data (oss)")["path"],
        "恒源云_学术加速代理": every.word((), r"accelerator is a proxy: `([^`]+)`"),
        "矩池云_能只关机不释放": not every.says((), "矩池云 has no powered-off state at all"),
        "矩池云_释放后还在的目录": matpool.storage("cloud drive")["path"],
        "矩池云_机器内自行释放要用的令牌环境变量": matpool.word(("verbs", "down"), r"grep (\w+)"),
        "矩池云_机器内自行释放的程序": next(word for word in release.split() if word.endswith("/matncli")),
        "featurize_归还88号实例的命令": featurize.word(("meter", "stops_with"), r"`([^`]+)`"),
        "featurize_机器里shutdown之后还扣费": featurize.says(("meter", "stopped_still_bills"), "^everything"),
        "featurize_归还后还在的目录": featurize.storage("cloud drive")["path"],
        "featurize_把6006端口发布出去的命令": export.replace("<port>", "6006"),
        "featurize_最多能发布几个端口": 10 if every.says((), r"\(HTTP, at most ten\)") else None,
        "揽睿星舟_停止后数据盘怎么收费": lanrui.value("meter", "stopped_still_bills").split(";")[0],
    }


def verify(box: Box) -> list[str]:
    """A path may end in a slash or begin with ~; the return runs on the box and takes no id."""
    answer = box.read(quiz.FORM)
    command = str(answer.get("featurize_归还88号实例的命令", ""))
    work = str(answer.get("featurize_归还后还在的目录", "")).rstrip("/").replace("~", "/home/featurize", 1)
    words = command.strip("` ").split()
    checks = {
        "featurize_归还88号实例的命令": "featurize" in words and words[-2:] == ["instance", "release"],
        "featurize_归还后还在的目录": work == TRUTH["featurize_归还后还在的目录"],
        "矩池云_释放后还在的目录": str(answer.get("矩池云_释放后还在的目录", "")).rstrip("/") == "/mnt",
        "揽睿星舟_停止后数据盘怎么收费": str(answer.get("揽睿星舟_停止后数据盘怎么收费")).lower() == "unknown",
        "恒源云_学术加速代理": str(answer.get("恒源云_学术加速代理", "")).rstrip("/") == TRUTH["恒源云_学术加速代理"],
    }
    return quiz.settled(answer, TRUTH, checks)


OLD = {
    "恒源云_关机多少天后释放实例": 15,
    "矩池云_能只关机不释放": True,
    "矩池云_机器内自行释放要用的令牌环境变量": "MATPOOL_TOKEN",
    "featurize_机器里shutdown之后还扣费": False,
    "揽睿星舟_停止后数据盘怎么收费": "按天计费",
}
CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/china.md",),
    minutes=5,
    commands=10,
    make=quiz.note("机器.txt", "恒源云 4090 按量\n矩池云 A100\nFeaturize 88\n揽睿星舟 工作空间\n"),
    reference=quiz.writer(look_up),
    naive=quiz.remembered(TRUTH, **OLD),
    held_out=True,
    expected="Fourteen rules of four providers, and an honest unknown where no official text says it.",
)
