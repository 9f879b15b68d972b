"""Makes the binary files of this folder from the others: `python tests/data/wild/make.py`.

Every training file has six messages of each of three teams, every file to predict three new ones of billing,
login and praise, in this order.
"""

import csv
from datetime import date
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent


def rows_of(name, encoding="utf-8"):
    """Without the header and without empty rows."""
    with (HERE / name).open(encoding=encoding, newline="") as stream:
        delimiter = ";" if name.startswith("german") else ","
        return [row for row in list(csv.reader(stream, delimiter=delimiter))[1:] if any(row)]


def book(path, sheets):
    workbook = openpyxl.Workbook()
    workbook.remove(workbook.active)
    for title, rows in sheets.items():
        sheet = workbook.create_sheet(title)
        for row in rows:
            sheet.append(row)
    workbook.save(path)


def main():
    with (HERE / "german-new.tsv").open("w", encoding="utf-16", newline="") as stream:
        rows = [["Nr", "Nachricht"], *rows_of("german-new.csv", "cp1252")]
        csv.writer(stream, delimiter="\t").writerows(rows)
    messages = [(row[3], row[4]) for row in rows_of("tickets.csv")]
    parquet = pa.table({"review": [text for text, _ in messages], "class": [team for _, team in messages]})
    pq.write_table(parquet, HERE / "reviews.parquet")
    tickets = [(n, date(2024, 3, n), text, team) for n, (text, team) in enumerate(messages, 1)]
    sheets = {"Tickets": [("No.", "Received", "Message", "Team"), *tickets, (None,) * 4]}
    book(HERE / "tickets.xlsx", sheets | {"Notes": [("nothing here",)]})
    new = [row[1] for row in rows_of("broken.csv") if row[0] in ("=1+1", "-3.50", "+a")]
    book(HERE / "new.xlsx", {"New": [("Message",), *([text] for text in new)]})


if __name__ == "__main__":
    main()
