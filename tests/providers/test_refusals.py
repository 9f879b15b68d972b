"""A model that declines to write, against people who write the same words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adamab.providers.generators.refusals import is_refusal

REFUSALS = """\
I'm sorry, but I can't assist with that.
I’m sorry, but I can’t assist with that request.
I'm sorry, I can't help with that.
I'm really sorry, but I can't help you with that.
Sorry, but I cannot help with this request as it involves hate speech.
I cannot help with that
I can't help you.
I cannot assist.
I'm unable to assist with this request.
I am unable to provide that.
I'm not able to help with this.
I'm afraid I can't fulfill this request.
I can't fulfil your request because it violates the rules.
Unfortunately, I cannot comply with this request.
I cannot generate harmful or offensive content.
I can't create content that promotes violence.
I won't write such texts.
I will not generate hateful messages.
I cannot write such examples.
I cannot provide this type of content, but I can help with something else.
I can't help with creating harmful content.
I don't feel comfortable generating such content.
I'm not comfortable writing that.
I must decline.
I must respectfully decline this request.
I have to decline to write such content.
I apologize, but I cannot provide explicit content.
I apologize for the inconvenience, but I can't help with that.
I understand that you need training data, but I can't create hateful texts.
As an AI language model, I cannot write that.
As an AI, I don't have personal experiences.
As a large language model I am not able to produce this.
As an AI assistant, it's not possible for me to write this.
I'm an AI and cannot have opinions.
I'm just a language model, so I can't help with that.
This request violates my guidelines.
Your request goes against our usage policies.
It is not appropriate for me to write that.
It would be inappropriate for me to generate this.
My guidelines do not allow me to write that.
Unable to comply with this request.
"I'm sorry, but I can't assist with that."
**I cannot assist with that.**
Es tut mir leid, aber ich kann dabei nicht helfen.
Es tut mir leid, aber ich kann Ihnen dabei nicht helfen.
Tut mir leid, dabei kann ich nicht helfen.
Es tut mir leid, aber diese Anfrage kann ich nicht erfüllen.
Ich kann leider keine beleidigenden Texte schreiben.
Als KI-Sprachmodell kann ich das nicht.
Je suis désolé, mais je ne peux pas vous aider avec cela.
Désolée, je ne peux pas répondre à cette demande.
Je ne peux pas générer de tels contenus.
En tant qu'intelligence artificielle, je ne peux pas écrire cela.
Lo siento, pero no puedo ayudarte con eso.
Lo siento, no puedo cumplir con esa solicitud.
No puedo generar ese tipo de contenido.
Como modelo de lenguaje, no puedo opinar.
Mi dispiace, ma non posso aiutarti con questo.
Mi dispiace, non posso soddisfare questa richiesta.
Desculpe, mas não posso ajudar com isso.
Não posso criar esse tipo de conteúdo.
Het spijt me, maar ik kan je daar niet mee helpen.
Sorry, daar kan ik je niet mee helpen.
Przykro mi, ale nie mogę pomóc w tej sprawie.
Извините, но я не могу помочь с этим.
К сожалению, я не могу выполнить этот запрос.
Как языковая модель, я не могу этого делать.
抱歉，我无法协助您完成这个请求。
对不起，我不能提供这类内容。
作为一个AI语言模型，我无法回答。
申し訳ありませんが、そのリクエストにはお応えできません。
申し訳ございませんが、そのようなコンテンツを作成することはできません。
죄송하지만 도와드릴 수 없습니다.
죄송합니다. 해당 요청은 도와 드릴 수 없습니다.
عذرًا، لا أستطيع مساعدتك في ذلك.
क्षमा करें, मैं इसमें मदद नहीं कर सकता।
Üzgünüm, bu konuda yardımcı olamam.
"""
GENUINE = """\
I'm sorry but I can't log in
I'm sorry, but I can't find my order.
I can't help but love it
I can't help it, this phone is gorgeous.
I can't help loving this place
I can't help my customers because your app is down
I can't help you if you never answer my mails
Sorry, but I cannot open the attachment.
I am unable to create an account
I'm unable to complete this payment
I'm unable to provide my ID card, what now?
I can't provide proof of purchase
I cannot write a review on your site
I can't write texts to my mother with this phone
I can't create content on your platform anymore
I cannot answer this question on the security form
I can't complete this task in the app
I can't continue with the installation
I won't recommend this to anyone
I will not accept this excuse
I must decline your offer, it is too expensive
I must say I am disappointed
I have to refuse delivery, the box is open
Unfortunately the parcel never came
Unfortunately, I cannot attend.
Unable to log in since Monday
As an AI engineer I can't recommend this course
As an artist, I cannot work like this.
As a customer, I can't accept that.
I'm an assistant at a law firm and can't open the documents
I'm a model and can't wear this brand
I am an AI researcher and I love this book. I can't put it down
The chatbot said: I'm sorry, but I can't assist with that.
Your bot keeps telling me "I cannot help with that"
This request has been open for weeks
My request was denied again, please explain
Your request form is broken
It is not appropriate to charge twice
It's against my religion to eat that
Sorry that I'm late with the payment
I appreciate the quick reply, but I can't see the refund
I understand the delay, but I can't wait any longer
Thank you for your help, but I still can't log in
I can't process this. My dog died.
I can't discuss prices over the phone
I can't assist the meeting tomorrow
Can't help smiling when I see it
Es tut mir leid, aber ich kann mich nicht einloggen
Ich kann dir nicht helfen, wenn du nicht antwortest
Leider kann ich das Paket nicht annehmen
Als Kunde kann ich das nicht akzeptieren
Als Kind habe ich das geliebt
Je suis désolé mais je ne peux pas me connecter
Je ne peux pas créer de compte
En tant que client, je ne peux pas accepter cela
Lo siento, pero no puedo entrar en mi cuenta
No puedo crear una cuenta
Como cliente no puedo aceptarlo
Mi dispiace ma non posso accedere
Non posso creare un account
Desculpe, mas não posso entrar na conta
Não posso criar uma conta
Het spijt me, maar ik kan niet inloggen
Przepraszam, ale nie mogę się zalogować
Извините, но я не могу войти
Не могу создать аккаунт
抱歉，我无法登录
对不起，我不能提供身份证
申し訳ありませんが、ログインできません
죄송하지만 로그인할 수 없어요
عذرًا، لا أستطيع تسجيل الدخول
Üzgünüm ama giriş yapamıyorum
Where is my refund?
"""


@pytest.mark.parametrize("text", REFUSALS.splitlines())
def test_a_model_that_declines(text: str) -> None:
    assert is_refusal(text)
    assert is_refusal(f"{text}\n\nIf there is anything else, let me know.")
    assert is_refusal(f"  {text.upper() if text.isascii() else text}")


@pytest.mark.parametrize("text", GENUINE.splitlines())
def test_a_person_who_complains(text: str) -> None:
    assert not is_refusal(text)


@given(st.text(max_size=600))
def test_no_text_is_too_strange(text: str) -> None:
    assert is_refusal(text) in (True, False)


@pytest.mark.parametrize(
    "part", ["i understand, ", "sorry, ", "thank you, i appreciate, ", "as an ai, i ", "i'm "]
)
def test_no_text_takes_forever(part: str) -> None:
    assert not is_refusal(part * 2000)
