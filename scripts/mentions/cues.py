"""The words that make a number somebody else's, a wish, or that of another state of a model.

They are looked for only around a number that differs from its claim, so what counts here is that they are complete,
not that they are fast. Phrases are separated by commas or line ends and may use regular expressions.
"""

from __future__ import annotations

import re


def phrases(text: str) -> str:
    """One expression for all of them, as whole words."""
    return r"\b(?:" + "|".join(filter(None, map(str.strip, re.split("[,\n]", text)))) + r")\b"


def chinese(text: str) -> str:
    return "|".join(text.split())


def _any(*expressions: str) -> re.Pattern[str]:
    """One expression for all. One test at each place dismisses those that start with a word, or with a Chinese one."""
    words = [part for part in expressions if part.startswith(r"\b")]
    characters = [part for part in expressions if "\u3400" <= part[0] <= "\u9fff"]
    groups = [part for part in expressions if part not in words and part not in characters]
    if words:
        groups.append(rf"\b(?=\w)(?:{'|'.join(words)})")
    if characters:
        groups.append(rf"(?=[\u3400-\u9fff])(?:{'|'.join(characters)})")
    return re.compile("|".join(groups), re.I)


# -- somebody else's

REFERENCE = r"\[\s?(?:cite|\d+(?:\s?[,–-]\s?\d+)*)\s?\]"
_REPORTS = (
    r"(?:report|list|obtain|claim|state|publish|give|quote|find|found|measure|reach|achieve|get|got|score|show|cite|have"
    r"|had|has|attain|record|note|present|announce)\w*"
)
_CITED = (
    rf"{REFERENCE},?\s(?:also\s|even\s|only\s)?{_REPORTS}|\b(?:in|from|by|to|of|see|per)\s{REFERENCE}|{REFERENCE}'s\b"
    r"|\bet al\b|\b[A-Z][a-z]+(?: (?:and|&) [A-Z][a-z]+)?,? \(?(?:19|20)\d\d[a-z]?\)"
)
# "Kim reports": a capital starts a name, unless it is one of the words that start a sentence about our own work
_SOMEBODY_REPORTS = (
    r"(?-i:\b(?!(?:Table|Figure|Fig|Slide|Row|Section|This|It|That|We|The|Evaluation|Experiments?|Results?|Column|Log"
    r"|Appendix|Here|Everyone|One|Test|Our|Another|Which|Also|And)\b)[A-Z][a-z]+ "
    r"(?:reports?|reported|claims?|claimed|quotes?|quoted|states?|stated|publish(?:es|ed)|lists?|listed|announce[sd]?"
    r"|found|finds|measured|measures)\b)"
)
_OTHER_WORK = (
    r"\b(?:prior|previous|earlier|related|existing|concurrent|competing|published|recent|past|other) "
    r"(?:works?|stud(?:y|ies)|results?|papers?|art|best|sota|state[- ]of[- ]the[- ]art|methods?|approach(?:es)?|models?"
    r"|numbers?|record|systems?|groups?|teams?|labs?|people)\b"
    r"|\boriginal\b[^,.;]{0,25}\b(?:papers?|publications?|work|authors?|article|report|implementation|numbers?)\b"
    r"|(?<!new )\b(?:state[- ]of[- ]the[- ]art|SOTA)\b"
    r"|\btheir (?:own )?(?:\w+ )?"
    r"(?:papers?|runs?|models?|results?|numbers?|report|implementation|setup|system|method|best)\b"
)
_THEIRS = r"'s (?:\w+ )?(?:group|team|lab|thesis|paper|report|work|blog|talk|preprint|system|submission)\b"
_PASSED_ON = (
    rf"\b(?:papers?|authors?|they|blog|vendors?|competitors?|manufacturers?|article|preprint|readme|website) "
    rf"(?:also |themselves |originally )?{_REPORTS}"
    r"|\b(?:according to|as per|as (?:reported|published|stated|given|listed|quoted|claimed|cited|announced))\b"
    r"|\b(?:reported|quoted|copied|taken|cited|claimed|published|announced|obtained|achieved) "
    r"(?:by (?!our|us|this|the (?:proposed|present)|[A-Z])|from|elsewhere)|\breported in\b"
)
_SOURCES = phrases(r"""
    published, literature, leader ?board, model card(?! of (?:our|this)), data ?sheet, blog, forum, wiki, thesis
    tweet, press release
    official(?:ly)?(?! (?:script|split|test|evaluation|code|protocol|server|scorer))
    competitors?'?s?, vendors?'?s?, third[- ]party, authors? of, challenge, competition, contest
    colleagues?, somebody, someone, (?:often|sometimes) (?:cite|quote|claim|report)[ds]?(?:ed)?
    humans?, annotators?, chance, random guess\w*, majority class
""")
FOREIGN = _any(
    _CITED,
    _SOMEBODY_REPORTS,
    _OTHER_WORK,
    _THEIRS,
    _PASSED_ON,
    _SOURCES,
    chinese(
        "文献 前人 原论文 原文 等人 他人 他们 官方 榜单 排行榜 已发表 公开报[道告] 论文(?:中)?(?:报告|报道|给出) "
        "原作者 作者(?:报告|给出|声称) 竞品 友商 人类 随机猜测 以往(?:工作|方法|研究) 已有(?:工作|方法|研究) 相关工作 "
        "据[^，。]{0,12}(?:报道|报告) 博客 据称 声称 第三方 冠军 网上 流传 传闻 未能复现"
    ),
)
# where a number of somebody else is named behind ours: "91.2 on SVHN, as reported by Kim"
SAID_LATER = _any(
    phrases(r"""
    according to, reported, quoted, copied, taken from, cited, et al
    as (?:reported|published|stated|given|listed|quoted|claimed|cited)
    (?:is|was|as|being) (?:our|the|a) (?:target|goal|requirement|threshold)
""")
)

# -- a wish, a bound, a condition

WISH = _any(
    phrases(r"""
    targets?, targeted, targeting, goals?, objective(?! function), aims?, aimed, aiming, hopes?, hoped, hoping
    hopefully, expect(?:s|ed|ation|ations)?, plans? to, planned, anticipat\w+, projected, projection
    forecast\w*, predicted to, requires?, requiring, requirements?, the required, required(?!\s[\d.]+)
    whether, can (?:get|reach|hit|achieve|attain), (?:is|are) to (?:get|reach|hit|achieve|attain|have)
    must, should, would, could, might, may(?! note), shall, ought to, ha(?:s|ve|d) to, needs? to, needed to, supposed to
    meant to, intended, desired, ideally
    wish, wants?, wanted, demands?, demanded, asks for, promis(?:es|ed|ing), likely, probably, eventually
    SLA, SLO, KPI, milestone, deadline, specifications?, criteri(?:on|a), acceptance, acceptable, accept(?:s|ed)?
    pass mark, threshold, cut-?off, budget(?:ed)?(?! of [\d.]+), (?:upper|lower) (?:bound|limit), oracle, ceiling
    if, unless, until, once(?! trained), suppose, assum(?:e|ing), hypothe\w+, imagin\w+, simulated, estimated?
    extrapolat\w+, potential(?:ly)?, next (?:year|quarter|week|month|release), stop(?:s|ped)? (?:when|once|as soon)
"""),
    r"\bneeds? (?:about |at least |around )?[\d.]+ ?%|\bwill (?!be (?:noted|recalled)|recall)",
    chinese(
        "目标 预期 预计 有望 希望 期望 计划 规划 要求 需要?达到 应达到 应当 力争 争取 假设 假如 如果 若(?!干) 或可 "
        "可能 门槛 阈值 上限 下限 上界 下界 理论(?:上|值) 验收 底线 拟"
    ),
)

# -- another state of the model, of the data, or of the text

_THING = (
    r"(?:versions?|drafts?|submissions?|runs?|releases?|values?|numbers?|results?|checkpoints?|reports?|models?"
    r"|attempts?|experiments?|iterations?|code|snapshots?|revisions?|config\w*|setups?|years?|quarters?|weeks?|months?"
    r"|figures?|tables?|implementations?|scores?|prototypes?|measurements?|evaluations?|builds?|commits?)"
)
_UNFINISHED = phrases(r"""
    half-?way, mid-training, intermediate, preliminary, provisional, tentative, so far, already, in progress, ongoing
    unfinished, still (?:training|running), after (?:just|only), after (?:the )?first, epochs? only, (?:for|after) only
    at (?:initiali[sz]ation|epoch|step|iteration), (?:epoch|step|iter(?:ation)?)\s?[:=#]?\s?\d\d*k?
    only \d+ (?:epochs?|steps?|iterations?), early-?stop(?:s|ped)?, random(?:ly)? init\w*, go/no-go
    (?:in|during) (?:warm-?up|debug\w*|a (?:pilot|smoke|sanity)), pilot, debug run, sanity check, laptop
""")
_EARLIER = (
    phrases(r"""
    before, prior to, previously, formerly, originally, initially, used to, at first, back then, once had, had been
    no longer, last (?:year|quarter|week|month|time|spring|summer|autumn|winter), ago, superseded, outdated, obsolete
    retracted, version \d[\d.]*\d, preprint, camera-ready, submission, snapshot, pre-?release
    (?:the|of|from|our|in (?:the|our)) (?:19|20)\d\d
""")
    + r"|\b(?:earlier|previous|old|older|former|initial|first|last|outdated|obsolete|deprecated|superseded|stale"
    rf"|withdrawn|preceding|original|legacy) (?:[\w'-]+ ){{0,3}}?{_THING}\b"
    r"|\b(?:January|February|March|April|May|June|July|August|September|October|November|December)(?:'s)? "
    rf"(?:\w+ )?{_THING}\b"
)
_CHANGED = phrases(r"""
    (?:quanti[sz]|prun|compress|distill|binari[sz]|sparsif)\w*, sparsity, (?:INT|FP)[48], [48]-bit, half[- ]precision
    (?:ablat|disabl)\w+, removing, removed, dropping, omitting, leaving out, stripping, w/o, instead of, only the
    swapping, swapped, doubled, halved, (?:turning|turned|switching|switched) (?:off|on)
    no skip, (?:un)?frozen, ensembl\w+, combined, test[- ]time augmentation
    TTA, a (?:smaller|larger|bigger|wider|deeper|narrower|shallower|modified|simplified|lighter|tiny|stripped-down)
    with (?:only|just|half)
    with (?:an? |the )?(?:fixed|linear|fewer|less|more|half|smaller|larger|additional|extra|no|reduced|shared)
    with (?:an? |the )?(?:ground-truth|random|shuffled|missing|perfect|ideal)
""") + (
    r"|\bwithout\b(?! (?:any|further|extra|additional|bells|tuning|loss|retraining|changes?|modification|much|doubt"
    r"|exception|problems?|issues?))"
)
_OTHER_DATA = (
    phrases(r"""
    subset, shuffled, noisy, corrupted, adversarial, out-of-distribution, OOD, transferred, on training data
    (?:zero|few|one|\d+)-shot, when trained on (?:only |just )?(?:half|\d+)
    (?:tenth|fraction|quarter|third|half) of the (?:schedule|data|epochs|steps|training|labels|budget)
    class(?:es)? with, per[- ]class
    (?:hardest|easiest|rare|rarest|largest|smallest|worst|best) class(?:es)?
""")
    + r"|\b(?:fine-?tuned|trained) (?:on|with) (?:only |just )?[\d.]+ ?%"
)
# a number that somebody does not believe, or takes back
_WRONG = phrases(r"""
    bugs?(?! ?fix), buggy, leak\w*, errat(?:um|a), typos?, mistaken(?:ly)?, by mistake, wrong(?:ly)?, incorrect(?:ly)?
    flawed, broken, doubt(?:s|ed|ful)?(?<!no doubt), dispute[sd]?, refute[sd]?, corrects?, misprint\w*, irreproducible
    (?:could|can|did) ?not (?:be )?(?:reproduce[d]?|confirm(?:ed)?|verif(?:y|ied))
""")
# one run of several, or one number for several datasets
_ONE_OR_ALL = (
    phrases(r"""
    seed \d+, run \d+, fold, median, maxim(?:um|al), minim(?:um|al), per-seed
""")
    + r"|\b(?:worst|best|top|single|individual|one|luckiest|lucky|unluckiest|unlucky|strongest|weakest|first|second"
    r"|third)"
    r"(?:[- ]performing)?(?: single| individual)? (?:random )?(?:seeds?|runs?|checkpoints?|folds?|trials?)\b"
    r"|\baverage\b(?:[^,;.]|\.(?!\s+[A-Z])){0,60}\b(?:over|across) "
    r"(?!\d|\w+ (?:random |independent |different )?(?:seeds|runs|trials|repeats|repetitions))"
    r"|\b(?:averaged?|mean)\b[^,;.]*\b(?:over|across) (?:all|both|(?:the )?(?:\w+ )?(?:datasets|benchmarks|tasks))\b"
)
STATE = _any(
    _UNFINISHED,
    _EARLIER,
    _CHANGED,
    _OTHER_DATA,
    _WRONG,
    _ONE_OR_ALL,
    chinese(
        "中间(?:结果|检查点) 初步 第\\s?\\d+\\s?(?:个\\s?)?(?:轮|步|次|epoch) 轮时 步时 一半 只训练 仅训练 数据训练 "
        "此前 之前 先前 早先 早期 旧版 旧的 旧值 旧结果 老版本 上一?版 上一?次 上个?版本 上个?月 上周 初版 初稿 "
        "最初 原先 原来 去年 曾经? 版本中 月份 (?:微调|调参|训练|优化|修复)前 "
        "量化 剪枝 蒸馏 集成 半精度 冻结 去掉 去除 移除 剔除 换用 改用 不使用 不加 不用 未使用 消融 关闭 仅用 只用 "
        "打乱 噪声 零样本 少样本 子集 对抗 单次 最差 最好的?一次 最优(?:种子|一次) 最[好佳]的?种子"
    ),
)
SPLITS = {
    "val": _any(phrases("validation, val, dev, development[ -](?:set|split|data)"), chinese("验证 开发集")),
    "train": _any(
        r"\btrain(?:ing)?[ -](?:set|split|accuracy|acc|loss|error|perplexity|ppl|f1|wer|psnr|ssim|score|metrics?)\b",
        r"\bin-sample\b",
        chinese("训练集 训练(?:损失|准确率|误差|精度)"),
    ),
    "test": _any(r"\btest(?:ing)?[ -](?:set|split)\b", "测试集"),
}
# "tuned on the validation set" says how, not where
CHOSEN_ON = re.compile(
    r"(?:tuned|selected|chosen|stopp(?:ing|ed)|pick(?:ed|ing)|selecti(?:on|ng)|choos(?:e|ing)|using|based|calibrated)"
    r"(?: \w+){0,3} $",
    re.I,
)

# -- what the label of a row or column may say; there a single word is enough
LABEL = _any(
    phrases(r"""
    et al, papers?, reported, published, literature, official, prior, previous, others?, human, chance, random
    leader ?board, sota, their, vendor, reference, ref, quoted, copied, claimed, old
"""),
    chinese("文献 原论文 原文 等人 官方 人类 已有 以往 报告值 参考值 旧"),
)

# -- what only compares: "91.2, better than prior work"
COMPARED = _any(
    phrases(r"""
    than, compared (?:to|with), unlike, in contrast (?:to|with), contrary to, against, versus, vs\.?, over, above, below
    beyond, exceed\w*, surpass\w*, beat\w*, outperform\w*, improv\w+ (?:on|over|upon), ahead of, behind, following, like
    similar to, building on, inspired by, relative to, match\w*, meet\w*, met, miss\w*, clos\w+ to, on par with
    in line with, consistent with, up from, down from, as (?:in|with)
"""),
    chinese("比 较 相较 优于 高于 低于 超过 超越 不同于 达到了 满足 符合"),
)
COMPARED_AFTER = re.compile(
    r"[^，,。；;]{0,14}(?:相比|相较|不同)|\s(?:was|is|has been|were) (?:met|reached|exceeded|missed|beaten|surpassed)\b"
)

# -- something made from a method is another one

DERIVED = re.compile(
    r"\s?(?:-based|variants?|ensembles?|students?|teachers?|predecessors?|successors?|papers?|authors?|team|prototypes?"
    r"|snapshots?|clones?|models combined|repo(?:sitory)?)\b"
)
OF = re.compile(r"(?P<noun>[A-Za-z][A-Za-z-]*) (?:models? )?of (?:the |our |an? )?$")
# "the performance of X" is X's, "the student of X" is not
OWN_NOUNS = frozenset(
    "performance score scores value values result results number numbers figures evaluation evaluations run runs "
    "re-run rerun rerunning retraining reproduction replication checkpoint checkpoints weights outcome case use "
    "training quality output application test tests mean means average averages level levels behaviour behavior "
    "strength because instead ahead front that those most all one each any".split()
)
# "X with greedy decoding" is another X, "X with the default settings" is not
WITH = re.compile(
    r"\s(?:with|using|under|in|on top of) (?:an? |the )?"
    r"(?!(?:lr|learning|batch|seeds?|default|standard|usual|same|our|these|this|all|full|its|early|mean|average|test"
    r"|terms|total|general|particular|turn|contrast|comparison|fact|every|both|each|most)\b)(?P<word>[a-z][a-z-]+)"
)
# "on rotated SVHN" is other data, "on the full SVHN" is not
ALTERED = re.compile(
    r"\b(?:on|for|of|over) "
    r"(?!(?:the|our|full|whole|entire|all|standard|original|public|test|both|a|an|this|that|and|plain|clean|complete"
    r"|using|with|regular)\b)(?P<word>[a-z][a-z-]+) $"
)
# "on the SVHN images that contain text": a part of the data
PART = re.compile(
    r"\s(?:test )?(?:images|samples|examples|sentences|utterances|scenes|queries|documents|items|cases|pairs|videos"
    r"|frames)"
    r"\s(?:that|which|with|where|containing|from|of)\b"
)
# "when the learning rate is doubled", but "when tested on SVHN"
WHEN = re.compile(
    r"\b[Ww]hen (?!(?:evaluated|tested|run|measured|applied|used|trained) (?:on|over|to)\b)"
    r"(?:the |its |all )?(?P<word>\w)"
)
# "At half precision, X gets", "For cats, X gets"
SITUATION = re.compile(
    r"^\W*(?:When|At|Under|Given|Where|Once) "
    r"(?!(?:the )?(?:trained|same|end|first|best|last|present|moment)\b|all is said)[^,\d]{3,60},"
    r"|^\W*At [a-z]+ precision\b"
    r"|^\W*For (?!example|instance|completeness|clarity|simplicity|reference|comparison|now|short)[a-z-]+,"
)
