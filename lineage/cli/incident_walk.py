"""`lineage incident RUN`: the first hour as a checklist that knows what is done, and what to do next."""

from __future__ import annotations

from typing import Any

import typer
from rich.markup import escape

from ..judge import first_hour
from ..judge.first_hour import Facts, Item
from ..judge.incident_life import ORDER, WORDS, Life
from . import incident_facts, judging
from .common import Exit, Json, Run, console, emit, ending, find, short
from .incident_facts import Which

NAME = "walk"
BOX = {"done": "[green]done[/]", "part": "[yellow]part[/]", "todo": "[bold]todo[/]", "none": "[dim]  - [/]"}


def command(run: Run = None, which: Which = None, as_json: Json = False) -> None:
    """Walk through the first hour of an incident: what is done, by what is on record, and what to do next.

    Changes nothing. Exit code 1 while something is left to do.
    """
    subject = find(run)
    name = incident_facts.command_name(subject, run)
    life = incident_facts.choose(subject, which, name)
    facts = incident_facts.facts(subject, life, name)
    items = first_hour.checklist(facts)
    if as_json:
        emit(_data(facts, items))
    else:
        _show(facts, items, incident_facts.others(subject, life))
    left = first_hour.following(items) is not None
    raise ending(Exit.FOUND if left else Exit.OK, judging.damage(subject), as_json=as_json)


def _data(f: Facts, items: list[Item]) -> dict[str, Any]:
    life, following = f.life, first_hour.following(items)
    return {
        "incident": life.uid,
        "status": life.status,
        "title": life.latest.title,
        "owner": life.latest.owner,
        "milestones": [_plain(m) for m in life.milestones.values()],
        "messages": [{"at": m.at.isoformat(), "by": m.by, "to": m.to, "text": m.text} for m in life.messages],
        "notes": [{"at": n.at.isoformat(), "by": n.by, "text": n.text} for n in life.notes],
        "links": life.links,
        "evidence": list(f.gate.items),
        "gate_open": f.gate.is_open,
        "items": [
            {
                "key": i.key,
                "title": i.title,
                "state": i.state,
                "text": i.text,
                "commands": list(i.commands),
                "warnings": list(i.warnings),
                "see": list(i.see),
            }
            for i in items
        ],
        "next": following.key if following else None,
    }


def _plain(m: Any) -> dict[str, Any]:
    return {
        "status": m.status,
        "at": m.at.isoformat(),
        "by": m.by,
        "text": m.text,
        "override": m.override,
        "missing": list(m.missing),
        "record": m.record,
    }


def _show(f: Facts, items: list[Item], others: list[Life]) -> None:
    life = f.life
    console.print(f"[bold]incident {short(life.uid)}[/]  {escape(life.latest.title)}")
    states = [
        f"[green]{WORDS[s]}[/]" if life.reached(s) is not None else f"[dim]{WORDS[s]}[/]" for s in ORDER
    ]
    console.print(f"  {' > '.join(states)}")
    for link in life.links:
        console.print(f"  {escape(link)}")
    console.print()
    following = first_hour.following(items)
    for n, item in enumerate(items, 1):
        mark = "[bold yellow]>[/]" if item is following else " "
        console.print(f"{mark} {n:>2}  {BOX[item.state]}  [bold]{escape(item.title)}[/]")
        console.print(f"           {escape(item.text)}")
        for warning in item.warnings:
            console.print(f"           [bold red]{escape(warning)}[/]")
        if item is not following and item.state != "done":
            for line in item.commands[:1]:
                console.print(f"           [dim]{escape(line)}[/]")
    console.print()
    _next(following)
    if others:
        names = ", ".join(f"{short(x.uid)} ({x.latest.title[:60]})" for x in others[:4])
        console.print(f"also open: {escape(names)}; --incident UID walks through one of them")


def _next(following: Item | None) -> None:
    if following is None:
        console.print("Nothing is left to do.")
        return
    console.print(f"[bold]next:[/] {escape(following.title)}")
    for line in following.commands:
        console.print(f"    [bold]{escape(line)}[/]")
    if not following.commands:
        console.print(f"    {escape(following.text)}")
    for line in following.see:
        console.print(f"    [dim]see {escape(line)}[/]")


def add(app: typer.Typer) -> None:
    """Register it."""
    app.command(NAME)(command)
