"""What trainers say in other languages, put into the English words that the line's reader knows.

Example:
    in_english("第3轮 损失: 0.31")        "epoch 3  loss : 0.31"
"""

from __future__ import annotations

import re

_WIDE = str.maketrans("：，；（）【】／＝", ":,;()[]/=")
# what trainers say in other languages; a Latin word counts only as a whole word
_FOREIGN = {
    word: english
    for english, spelled in {
        " train ": "训练|訓練|훈련|de entrenamiento|entrenamiento|de treino|treino|d'entraînement|di addestramento"
        "|обучения",
        " val ": "验证|検証|검증|validierung|validación|validação|validazione|de validación|de validação|di validazione"
        "|de validation|валидация|валидации|проверка",
        " test ": "测试",
        "val_loss ": "validierungsverlust",
        "loss ": "trainingsverlust|损失值|损失|損失|손실|verlust|perte|pérdida|perdida|perda|perdita"
        "|функция потерь|потерь|потери|потеря|kayıp|ошибка|лосс|strata",
        "acc ": "准确率|正确率|精度|正解率|정확도|genauigkeit|exactitude|exactitud|acurácia|accuratezza|точность",
        "lr ": "学习率|学習率|학습률|lernrate|taux d'apprentissage|tasa de aprendizaje|taxa de aprendizado"
        "|tasso di apprendimento|öğrenme oranı|скорость обучения",
        "epoch ": "训练轮数|轮数|轮次|エポック|에포크|에폭|epoche|époque|época|epoca|эпоха|epoka",
        " epoch ": "轮|本轮",
        "step ": "步数|步骤|ステップ|스텝|단계|schritt|étape|paso|passo|шаг|итерация|krok|adım",
        " step ": "步",
        "iter ": "迭代",
        "batch ": "批次|批|lote|батч|배치|バッチ",
        "grad_norm ": "∇|梯度范数|梯度|勾配ノルム|기울기 노름|gradientennorm|норма градиента|градиент"
        "|norma gradiente|norma del gradiente|norma do gradiente|norme du gradient",
        "ppl ": "困惑度",
        "eta ": "剩余时间",
        "time ": "耗时|用时|所要時間|시간|время|zeit|dauer|durée|süre|tiempo|tempo|czas|temps",
        "speed ": "速度|скорость",
        "samples/s ": "样本/秒|прим/с|샘플/초|サンプル/秒",
        "bpb ": "bits/dim|bits/byte|bits/char",
        "steps/s ": "步/秒|шаг/с|шагов/с|schritte/s",
        "s/step ": "s pro schritt",
        "s ": "秒|초",
        " ": "集",
        "reward ": "récompense|recompensa|ricompensa|belohnung|награда|奖励|报酬|報酬|보상",
        "avg ": "平均|moyenne|moyen|media|medio|média|promedio|mittlere|mittlerer|средний|средняя|среднее",
    }.items()
    for word in spelled.split("|")
}
_FOREIGN_ASCII = [word for word in _FOREIGN if word.isascii()]
_ORDINAL = re.compile(
    r"第\s*(\d+)\s*[轮步批]?(\s*/\s*\d+)?\s*个?\s*([轮步批]|次迭代|epoch|step)|(?:^\W*(?=\d+\D)|(?=\d+\D+目))(\d+)(エポック|ステップ|에폭|에포크|단계|스텝)目?"
)  # 第3/10轮 is epoch 3/10
FOREIGN_WORDS = "|".join(_FOREIGN_ASCII)  # those that a line of ASCII may hold
_WORDS = (
    rf"(?<![^\W\d_]){word}(?![^\W\d_])" if word[0].isascii() or "а" <= word[0] <= "я" or word[0] in "éàâ" else word
    for word in sorted(_FOREIGN, key=len, reverse=True)
)
_A_FOREIGN = re.compile(f"({'|'.join(_WORDS)}) ?", re.I)
_AN_ASCII_FOREIGN = re.compile(rf"\b(?:{FOREIGN_WORDS})\b", re.I)


def in_english(text: str) -> str:
    if not text.isascii():
        text = _ORDINAL.sub(lambda of: f"{of[3] or of[5]} {of[1] or of[4]}{of[2] or ''} ", text.translate(_WIDE))
    elif not _AN_ASCII_FOREIGN.search(text):
        return text
    return _A_FOREIGN.sub(lambda word: _FOREIGN[word[1].lower()], text)
