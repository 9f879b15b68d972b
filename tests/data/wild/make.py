"""Makes the files of this folder, which are data as people have it: `python tests/data/wild/make.py`.

Every training file has six messages of each of three teams, every file to predict three new ones whose teams
are `ANSWERS`, in order.
"""

import csv
import io
import json
import zipfile
from datetime import date
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
ANSWERS = ["billing", "login", "praise"]
ENGLISH = {
    "billing": [
        "Please send my money back, I was charged twice 💸",
        "The invoice of March is wrong, I want a refund.",
        'You charged the "yearly" fee although I cancelled.\nPlease refund it.',
        "Why was my card charged again? Give the money back.",
        "I paid for two licences; please refund one.",
        "The invoice shows a fee that I never agreed to pay.",
    ],
    "login": [
        "I cannot sign in, the password is refused.",
        "The reset link has expired, how do I sign in?",
        "My account is locked after three passwords.",
        "The sign-in page throws me out again and again.",
        "The code for signing in never arrives on my phone.",
        "Password forgotten; the account does not open.",
    ],
    "praise": [
        "I love this product, thank you so much 🎉",
        "Great work, everyone here likes the new version.",
        "What a lovely app, it makes my day easier.",
        "Thank you, the support team was wonderful.",
        "Best tool that I have used in years, great!",
        "We like it a lot; the update is wonderful 👍🏽",
    ],
}
NEW_ENGLISH = [
    "I want my money back, the invoice charged me twice",
    "my password is refused and I cannot sign in",
    "thank you, we love the lovely new version",
]
GERMAN = {
    "billing": [
        "Bitte überweisen Sie mein Geld zurück; es wurde doppelt abgebucht.",
        "Die Rechnung für März ist falsch, ich möchte eine Erstattung.",
        "Sie haben die Gebühr trotz Kündigung abgebucht.\nBitte erstatten Sie das Geld.",
        "Warum wurde schon wieder Geld abgebucht? Ich möchte die Gebühr zurück.",
        "Ich habe zwei Lizenzen bezahlt, bitte erstatten Sie eine Rechnung.",
        "Auf der Rechnung steht eine Gebühr, die ich nie bezahlen wollte.",
    ],
    "login": [
        "Ich kann mich nicht anmelden, das Passwort wird abgelehnt.",
        "Der Link für das Passwort ist abgelaufen; wie kann ich mich anmelden?",
        "Mein Konto ist gesperrt, das Passwort geht nicht.",
        "Beim Anmelden fliege ich immer wieder aus dem Konto.",
        "Der Code zum Anmelden kommt nicht auf mein Handy.",
        "Passwort vergessen, ich kann mein Konto nicht öffnen.",
    ],
    "praise": [
        "Ich liebe dieses Produkt, vielen Dank!",
        "Großartige Arbeit, die neue Version gefällt allen.",
        "Eine schöne App; sie macht mir Freude.",
        "Vielen Dank, der Service war wunderbar.",
        "Das beste Programm seit Jahren, großartig!",
        "Uns gefällt es sehr, das Update ist wunderbar.",
    ],
}
NEW_GERMAN = [
    "ich möchte mein Geld zurück, die Rechnung ist falsch",
    "das Passwort wird abgelehnt, ich kann mich nicht anmelden",
    "vielen Dank, die neue Version ist großartig",
]
CHINESE = {
    "billing": [
        "请退款,我被重复扣款了",
        "三月的发票不对,我要退款",
        "取消以后还扣款,请退款",
        "为什么又扣款?请马上退款",
        "发票上多了一个许可证,请退款",
        "发票上的扣款我没有同意",
    ],
    "login": [
        "我无法登录,密码不对",
        "登录链接过期了,怎么登录?",
        "账号被锁定,无法登录",
        "登录账号以后总是退出",
        "登录验证码收不到,无法登录账号",
        "忘记密码,无法登录",
    ],
    "praise": [
        "我非常喜欢这个产品,谢谢",
        "大家都非常喜欢新版本",
        "非常喜欢这个应用,谢谢你们",
        "谢谢,非常喜欢你们的客服",
        "多年来最好的工具,非常喜欢",
        "我们非常喜欢这个更新,谢谢",
    ],
}
NEW_CHINESE = ["请退款,发票不对,重复扣款", "密码不对,无法登录账号", "谢谢,我们非常喜欢新版本"]
LONG = "I was charged twice and want my money back. " * 372  # 16 kB


def interleaved(texts):
    """Rows as a ticket system writes them: the classes mixed."""
    return [
        (text, team)
        for group in zip(*texts.values(), strict=True)
        for text, team in zip(group, texts, strict=True)
    ]


def table(header, rows, delimiter=","):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\r\n").writerows([header, *rows])
    return out.getvalue()


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def book(path, sheets):
    workbook = openpyxl.Workbook()
    workbook.remove(workbook.active)
    for title, rows in sheets.items():
        sheet = workbook.create_sheet(title)
        for row in rows:
            sheet.append(row)
    workbook.save(path)
    # Without the time of writing, so that the file is the same each time.
    with zipfile.ZipFile(path) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def main():
    english, german, chinese = map(interleaved, (ENGLISH, GERMAN, CHINESE))
    # Excel in German: semicolons, a byte order mark, line breaks within quotes, an empty last column.
    rows = [(str(1000 + n), text, team, "") for n, (text, team) in enumerate(german)]
    (HERE / "german.csv").write_bytes(
        table(["Nr", "Nachricht", "Abteilung", ""], rows, ";").encode("utf-8-sig")
    )
    (HERE / "german-new.csv").write_bytes(
        table(["Nr", "Nachricht"], enumerate(NEW_GERMAN, 1), ";").encode("cp1252")
    )
    # A tab-separated export in UTF-16.
    (HERE / "german-new.tsv").write_bytes(
        table(["Nr", "Nachricht"], enumerate(NEW_GERMAN, 1), "\t").encode("utf-16")
    )
    # A ticket system: odd columns, none of them called text or label; empty rows at the end.
    rows = [(n, f"2024-03-{n % 28 + 1:02}", "", text, team) for n, (text, team) in enumerate(english, 1)]
    content = table(["ticket no.", "received", "", "Message", "Team"], [*rows, [""] * 5, [""] * 5])
    (HERE / "tickets.csv").write_text(content, "utf-8", newline="")
    # Rows that cannot be answered, a text of 16 kB, and cells that a spreadsheet would take for formulas.
    first, second, third = NEW_ENGLISH
    rows = [("=1+1", first), ("a2", ""), ("-3.50", second), ("@x", "  "), ("+a", third), ("a6", LONG)]
    content = table(["key", "text"], rows).replace("@x", "too,many,@x", 1)
    (HERE / "broken.csv").write_text(content, "utf-8", newline="")
    (HERE / "chinese.jsonl").write_text(jsonl({"sentence": t, "intent": c} for t, c in chinese), "utf-8")
    (HERE / "chinese-new.jsonl").write_text(jsonl({"sentence": text} for text in NEW_CHINESE), "utf-8")
    parquet = pa.table({"review": [text for text, _ in english], "class": [team for _, team in english]})
    pq.write_table(parquet, HERE / "reviews.parquet")
    rows = [(n, date(2024, 3, n), text, team) for n, (text, team) in enumerate(english, 1)]
    book(
        HERE / "tickets.xlsx",
        {
            "Tickets": [("No.", "Received", "Message", "Team"), *rows, (None,) * 4],
            "Notes": [("nothing here",)],
        },
    )
    book(HERE / "new.xlsx", {"New": [("Message",), *((text,) for text in NEW_ENGLISH)]})


if __name__ == "__main__":
    main()
