"""Telling a model that will not write from a customer who cannot log in.

Both begin with "I'm sorry, but I can't". A refusal is about the work: it declines to help, to write
or to comply, or it speaks as a machine. What it declines must be the request itself ("that", "this
request", "such content"); "I can't create an account" and "I can't help but love it" decline nothing.
Only the beginning of a text counts, since a customer may quote such a sentence further on.
"""

from __future__ import annotations

import re

from adamab.task.words import folded

_LOOKED_AT = 400  # characters

_END = (
    r"(?=\s*(?:$|[.,;:!?…]|\b(?:as|because|since|due|but|however|if|and|or|that|which|for|about|"
    r"involving|containing|promoting|related|with|without|in this|at this|here)\b))"
)
_ADJECTIVE = (
    r"(?:harmful|offensive|hateful|explicit|sexual|sexually explicit|violent|illegal|abusive|toxic|racist|"
    r"discriminatory|inappropriate|derogatory|dangerous|malicious|misleading|defamatory|fake)"
)
_NOUN = r"(?:content|texts?|material|samples?|examples?|messages?|statements?|language|speech|data)"
_ASKED = r"(?:request|prompt|task|topic|subject|question|query|content|material|text|conversation)s?"
# What is declined: 'that.', 'this request.', 'such content', 'harmful texts'; never 'this payment'.
_IT = (
    rf"(?:(?:this|that|it|these|those){_END}"
    rf"|(?:this|that|these|those|such|your|any such|the requested) (?:\w+ )?{_ASKED}{_END}"
    rf"|(?:this|that|these|such) (?:type|kind|sort|form)s? of \w+"
    rf"|(?:any |such |more |\d+ )?(?:training )?(?:content|texts|samples|examples|material){_END}"
    rf"|(?:\w+ )?{_ADJECTIVE}(?:(?:, | or | and |, or ){_ADJECTIVE}){{0,3}} (?:\w+ )?{_NOUN}\b"
    r"|hate speech\b)"
)
_CANNOT = (
    r"(?:i(?:'m| am)? ?)?(?:(?:can't|cannot|can not|won't|will not|couldn't|shouldn't)(?: be able to)?|"
    r"(?:simply |just )?(?:unable to|not able to|not going to|not allowed to|not permitted to)|"
    r"(?:must|have to|will have to) (?:respectfully |politely )?(?:decline|refuse)(?: to)?|refuse to|"
    r"(?:would )?rather not|(?:do not|don't) feel comfortable|not comfortable)"
)
_WRITE = (
    r"(?:(?:help |assist )?(?:you )?(?:with |in )?(?:generat|creat|writ|produc|provid|compos)(?:e|ing)|"
    r"engage in|participate in|discuss|continue with|fulfil+|comply with|respond to|answer|complete|"
    r"(?:assist|help)(?: you)? (?:with|in))"
)
_SORRY = (
    r"(?:(?:i(?:'m| am)(?: (?:really|very|so|truly))? (?:sorry|afraid)|sorry|(?:my )?apologies|"
    r"i apologi[sz]e|unfortunately|regrettably|thank you[^.!]{0,60}[.!,]|i understand[^.!]{0,120}[.!,]|"
    r"i appreciate[^.!]{0,120}[.!,])(?: for (?:the|any) [^,.]{0,40})?[\s,.;:!—-]*(?:but |however,? |that )?)"
    r"{0,3}"
)
_MACHINE = (
    r"(?:an? )?(?:large )?(?:language model|llm|(?:helpful |responsible )?ai|artificial intelligence|"
    r"virtual assistant|chatbot)(?: language)?(?: (?:model|assistant|system|chatbot|program))?"
)
_NOT = r"(?:n't|\bnot\b|cannot|unable|never|\bmust\b|decline)"

_ENGLISH = (
    rf"{_SORRY}{_CANNOT} {_WRITE} {_IT}",
    rf"{_SORRY}{_CANNOT} (?:assist|help|comply|proceed)(?: you)?(?: here| further)?\s*(?=$|[.!])",
    rf"{_SORRY}i (?:must|have to|will have to) (?:respectfully |politely )?(?:decline|refuse)"
    r"(?=\s*$|[.!]|,? (?:this|that|your|the) request)",
    rf"{_SORRY}(?:as|being) {_MACHINE},? (?:i|it|my)\b[^.!?\n]{{0,120}}?{_NOT}",
    rf"{_SORRY}i(?:'m| am) (?:just |only )?(?:an? )(?=[^.\n]{{0,30}}(?:\bai\b|language model|assistant))"
    rf"{_MACHINE}\b(?:[,.]| and| so| that| designed)[^\n]{{0,120}}?{_NOT}",
    rf"{_SORRY}(?:this|that|your|the) (?:request|prompt) "
    r"(?:violates|goes against|conflicts with|is against|may violate|is inappropriate|is harmful)\b",
    rf"{_SORRY}(?:it|this|that)(?: is|'s| would be| goes| would go)?(?: not)? "
    r"(?:against my (?:guidelines|programming|policy|policies|principles)|"
    r"(?:in)?appropriate for me to|ethical for me to|within my guidelines)",
    rf"{_SORRY}my (?:safety )?(?:guidelines|programming|policies|policy)\b[^.\n]{{0,60}}?"
    r"(?:prevent|prohibit|not allow|n't allow|not permit|forbid)",
)
_OTHERS = (
    # German
    r"(?:(?:es )?tut mir (?:sehr )?leid|entschuldigung|entschuldige|leider|"
    r"verzeihung)?[\s,.!:]*(?:aber |doch )?"
    r"(?:(?:ich kann|kann ich|ich darf|ich möchte|ich werde)(?: (?:dir|ihnen|euch))?(?: leider)?|"
    r"(?:dabei|damit|hierbei|bei dieser (?:anfrage|bitte)|diese(?:r|n)? (?:anfrage|bitte|wunsch)) "
    r"(?:kann|darf|möchte|werde) ich(?: (?:dir|ihnen|euch))?(?: leider)?)"
    r"(?: (?:dabei|damit|hierbei|bei (?:dieser|ihrer|deiner) (?:anfrage|bitte)))? ?"
    r"(?:nicht (?:helfen(?!,? wenn)|weiterhelfen|behilflich|nachkommen|erfüllen|unterstützen|bearbeiten)|"
    r"(?:(?:diese|dieser|ihre|deine|ihrer|deiner) (?:anfrage|bitte) (?:leider )?nicht \w+)|"
    r"(?:keine|solche|diese)n? (?:\w+ )?(?:texte|inhalte|beispiele|nachrichten)\w* (?:nicht )?"
    r"(?:erstellen|schreiben|generieren|verfassen|erzeugen|bereitstellen|liefern))",
    r"als (?:ki|ai|sprachmodell|künstliche intelligenz)\b[^.\n]{0,60}?(?:kann|darf|bin|habe|"
    r"werde|möchte) ich",
    # French
    r"(?:(?:je suis |je suis vraiment )?désolée?|je m'excuse|malheureusement|"
    r"je regrette)?[\s,.!:]*(?:mais )?"
    r"je ne (?:peux|suis|pourrai|puis)(?: pas| malheureusement pas)? ?(?:en mesure de |autorisée? à )?"
    r"(?:(?:vous |t')?aider(?=\s*(?:$|[.,!]|avec (?:cela|ça|cette|ce)|à (?:créer|écrire|générer|"
    r"rédiger)))|"
    r"(?:répondre|accéder|donner suite) à (?:cette|votre|ta) (?:demande|requête|question)|"
    r"(?:satisfaire|traiter|exécuter) (?:cette|votre|ta) (?:demande|requête)|"
    r"(?:générer|créer|écrire|produire|fournir|rédiger) (?:de |ce |ces |du |un )?(?:tels? |"
    r"telles? |type de )?"
    r"(?:contenus?|textes?|exemples?|messages?))",
    r"en tant (?:qu'|que )(?:une? )?(?:ia|intelligence artificielle|modèle de langage|"
    r"assistant (?:ia|virtuel))\b",
    # Spanish
    r"(?:lo siento(?: mucho)?|disculpa|disculpe|perdón|lamentablemente|lo lamento)?[\s,.!:]*(?:pero )?"
    r"no (?:puedo|me es posible|estoy en condiciones de|debo) "
    r"(?:ayudar(?:te|le|los|les)?(?=\s*(?:$|[.,!]|con (?:eso|esto|esa|ese|esta|este)|a (?:crear|"
    r"escribir|generar)))|"
    r"(?:cumplir|atender|satisfacer|responder|procesar)(?: con| a)? (?:esa|esta|tu|su|"
    r"la) (?:solicitud|petición|pregunta)|"
    r"(?:generar|crear|escribir|producir|proporcionar|redactar) (?:ese |este |esos |estos )?"
    r"(?:tipo de )?(?:contenidos?|textos|ejemplos|mensajes)\b)",
    r"como (?:una? )?(?:ia|inteligencia artificial|modelo de lenguaje|asistente (?:de ia|"
    r"virtual))\b[^.\n]{0,60}? no ",
    # Italian
    r"(?:mi (?:dispiace|spiace)|scusa|scusi|purtroppo)?[\s,.!:]*(?:ma )?non (?:posso|"
    r"sono in grado di|mi è possibile) "
    r"(?:aiutar(?:ti|la|vi|e)(?=\s*(?:$|[.,!]|con (?:questo|questa|quello)|in questo|"
    r"a (?:creare|scrivere)))|"
    r"assister(?:ti|la|e)\b|(?:soddisfare|rispondere a|elaborare) (?:questa|la tua|"
    r"la sua) (?:richiesta|domanda)|"
    r"(?:generare|creare|scrivere|produrre|fornire) (?:questo |questi |"
    r"tali )?(?:tipo di )?(?:contenut[io]|testi|esempi)\b)",
    r"(?:come|in quanto) (?:una? )?(?:ia|intelligenza artificiale|modello linguistico|"
    r"assistente (?:ia|virtuale))\b"
    r"[^.\n]{0,60}? non ",
    # Portuguese
    r"(?:desculpe?|me desculpe|sinto muito|lamento|infelizmente)?[\s,.!:]*(?:mas )?(?:eu )?não posso "
    r"(?:(?:te |lhe |o |a )?ajud(?:ar|á-lo|á-la)(?:-lo|-la|-te)?(?=\s*(?:$|[.,!]|com (?:isso|"
    r"isto|essa|esse|esta|este)))|"
    r"(?:atender|cumprir|responder)(?: a)? (?:essa|esta|sua|a essa) (?:solicitação|pedido|pergunta)|"
    r"(?:gerar|criar|escrever|produzir|fornecer) (?:esse |este )?(?:tipo de )?(?:conteúdos?|"
    r"textos|exemplos)\b)",
    r"como (?:uma? )?(?:ia|inteligência artificial|modelo de linguagem)\b[^.\n]{0,60}? não ",
    # Dutch
    r"(?:het spijt me|sorry|helaas)?[\s,.!:]*(?:maar )?(?:(?:ik kan|kan ik)(?: (?:je|u))?(?: helaas)? "
    r"(?:(?:hier|daar)(?:mee| niet mee)? ?(?:niet )?(?:mee )?helpen|niet helpen(?=\s*(?:$|[.,!]|"
    r"met (?:dat|dit|deze|die)))|"
    r"niet voldoen aan (?:dit|uw|je)|geen (?:\w+ )?(?:teksten|inhoud|voorbeelden)\b[^.\n]{0,20}?"
    r"(?:schrijven|genereren|maken))|(?:daar|hier) kan ik (?:je |u )?(?:helaas )?niet (?:mee |"
    r"bij )helpen)",
    r"als (?:een )?(?:ai|taalmodel|kunstmatige intelligentie)\b[^.\n]{0,60}? kan ik ",
    # Polish
    r"(?:przepraszam|przykro mi|niestety)[\s,.!:]*(?:ale )?nie mogę (?:ci |panu |pani )?"
    r"(?:pomóc(?=\s*(?:$|[.,!]|w tej|z tym|w tym))|spełnić (?:tej|twojej)|(?:tworzyć|pisać|"
    r"generować) (?:takich )?"
    r"(?:treści|tekstów))",
    # Russian, Ukrainian
    r"(?:извините|простите|к сожалению|прошу прощения)?[\s,.!:]*(?:но )?(?:я )?не могу "
    r"(?:(?:вам |тебе )?помочь(?=\s*(?:$|[.,!]|(?:вам |тебе )?с этим|с этой|в этом))|"
    r"выполнить (?:этот|ваш|эту|вашу)|(?:создавать|писать|генерировать|создать|"
    r"написать) (?:такой |такие |подобн\w+ )?"
    r"(?:контент|тексты|текст|материал\w*))",
    r"как (?:ии|искусственный интеллект|языковая модель)\b",
    # Chinese
    r"(?:非常|很|十分)?(?:抱歉|对不起|對不起|不好意思)[,。!、\s]*(?:但)?(?:我|本助手)?(?:无法|不能|無法|没办法|不会)"
    r"(?:为您|为你|向您|给您|继续)?(?:协助|協助|满足|滿足|生成|创作|撰写|帮助?[你您]|幫助?[你您]|"
    r"(?:提供|回答|完成|处理|回应|讨论)(?:这|此|该|您|你|相关|任何|帮助|协助|内容))",
    r"(?:作为|作為)(?:一个|一個|一名)?(?:ai|人工智能|人工智慧|语言模型|語言模型|大型语言模型)",
    # Japanese, Korean
    r"(?:大変)?(?:申し訳(?:ありません|ございません)(?:が)?|すみません(?:が)?|恐れ入りますが)[、。,\s]*[^。\n]{0,60}?"
    r"(?:お手伝い|お応え|お答え|生成|(?:コンテンツ|文章|テキスト|内容)[をのは]?[^。\n]{0,12}?(?:作成|提供|生成))"
    r"[^。\n]{0,10}?(?:でき|いたしかね|致しかね|出来)",
    r"(?:私は)?(?:ai|人工知能|言語モデル)(?:アシスタント|モデル)?(?:として|なので|ですので)",
    r"(?:죄송합니다(?:만)?|죄송하지만|미안하지만)[,.\s]*[^.\n]{0,60}?(?:도와\s?드릴|도움을 드릴|"
    r"(?:내용|요청|콘텐츠|텍스트)[^.\n]{0,12}?(?:제공|생성|작성|응)\w*) 수 없",
    r"(?:저는 )?(?:ai|인공지능|언어 모델)(?: 언어 모델| 어시스턴트)?로서",
    # Arabic, Hindi, Turkish
    r"(?:عذر[\u064b]?ا[\u064b]?|آسفة?|أنا آسف|أعتذر)[،,.\s]*(?:ولكن |لكن |و?لكنني |لكني )?"
    r"(?:لا (?:أستطيع|يمكنني)|لا استطيع) (?:مساعدتك|المساعدة|تلبية|(?:إنشاء|كتابة|تقديم) (?:هذا|"
    r"مثل|محتوى|نصوص))",
    r"(?:मुझे )?(?:खेद है|क्षमा करें|माफ़ करें|माफ करें)[,।\s]*[^।\n]{0,60}?(?:मदद|सहायता|"
    r"सामग्री)[^।\n]{0,20}?नहीं",
    r"(?:üzgünüm|özür dilerim|maalesef)[\s,.!]*(?:ama |ancak )?(?:bu (?:konuda|isteğe|talebe|"
    r"istekle)|size|sana)\b"
    r"[^.\n]{0,30}?(?:yardımcı olamam|yardım edemem|yanıt veremem|yerine getiremem)",
    r"bir (?:yapay zek[aâ]|dil modeli)\b[^.\n]{0,40}? olarak",
)
_REFUSAL = re.compile("|".join(f"(?:{pattern})" for pattern in (*_ENGLISH, *_OTHERS)))
_AROUND = " \t\"'“”„«»‘’`*_#>-•([{"


def is_refusal(text: str) -> bool:
    """Whether a model declines to write, in the commonest forms of a dozen languages.

    Example:
        >>> is_refusal("I'm sorry, but I can't assist with that.")
        True
        >>> is_refusal("I'm sorry, but I can't log in.")
        False
    """
    start = folded(text[:_LOOKED_AT]).replace("’", "'").lstrip(_AROUND)
    return _REFUSAL.match(start) is not None
