"""Four Chinese providers before a move, asked in Chinese: what a script takes for granted and is not so."""

from __future__ import annotations

from worlds import quiz, sheet

AUTODL = {
    "autodl_普通容器实例能用开发者API关机": (False, r"rented by hand, and the developer API does not know it"),
    "autodl_API调用成功时code字段的值": ("Success", r"read `code`, which must be `(\w+)`"),
    "autodl_Pro创建时系统盘最多再加多少GB": (500, r"only the system disk \(30 GB, up to (\d+) GB more at creation\)"),
    "autodl_开机之后再初始化文件存储_这台机器马上能用autodl-fs": (
        False,
        r"must be initialised in the console \*\*before\*\* the instance starts",
    ),
    "autodl_更换镜像后系统盘上的文件还在": (False, r"changing the image wipes the system disk"),
    "autodl_包月实例关机后不再计费": (False, r"A monthly subscription bills through 关机"),
    "autodl_控制台的TensorBoard只读哪个目录": ("/root/tf-logs", r"It reads `([\w/-]+)` only", r"/root/tf-logs/"),
}
CHINA = {
    "恒源云_实例迁移时hy-tmp跟着走": (False, r"never moved with the instance"),
    "恒源云_系统盘满了之后": ("开不了机", r"The root disk is full; the platform needs room on it to start"),
    "矩池云_登录时自动激活的conda环境": ("myconda", r"矩池云 activates `(\w+)` at login"),
    "矩池云_机器里能用docker": (True, r"Docker inside is not possible on 恒源云, and documented on 矩池云"),
    "矩池云_matncli释放时把环境存成exp要加的参数": (
        "-save -name exp",
        r"saved only as an environment \(-save -name <name>\)",
        r"--?save --?name[= ]exp",
        r"--?name[= ]exp --?save",
    ),
    "揽睿星舟_添加ssh公钥时工作空间要": ("已停止", r"揽睿星舟 takes keys while the workspace is stopped"),
}
NET = {"HF_ENDPOINT指向镜像站时_HF_TOKEN也会发给镜像站": (True, r"`HF_TOKEN` is sent to the mirror's owner")}
OLD = {
    "autodl_普通容器实例能用开发者API关机": True,
    "autodl_API调用成功时code字段的值": "200",
    "矩池云_登录时自动激活的conda环境": "base",
    "矩池云_机器里能用docker": False,
    "揽睿星舟_添加ssh公钥时工作空间要": "运行中",
}

CASE = sheet.case(
    {"profiles/autodl.md": AUTODL, "profiles/china.md": CHINA, "references/run-remote/china-network.md": NET},
    OLD,
    route="which platform, what survives, what bills?",
    minutes=6,
    commands=12,
    make=quiz.note("搬家.txt", "AutoDL 1 + Pro 3\n恒源云 1\n矩池云 1\n揽睿星舟 1\n"),
    held_out=True,
    expected="Fourteen rules of four providers that a script takes for granted.",
)
