#!/usr/bin/env python3
"""Makes templates.jsonl: random templates, and what transformers makes of them.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install transformers==5.24.0 jinja2==3.1.6
    /tmp/golden/bin/python datasets/tests/golden/templates.py 1 1500 datasets/tests/golden/templates.jsonl

The arguments: seed, count, output. Not run by the tests. The first line is what every template sees; then one template
a line, with its text, the spans of `{% generation %}`, or the kind of its error. The clock stands at 2026-03-05 09:07:03.
"""

import datetime, json, os, random, signal, sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import jinja2
import transformers.utils.chat_template_utils as chat

R = random.Random(int(sys.argv[1]))


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 9, 7, 3)


chat.datetime = Clock


def rendered(template, messages, variables):
    """What transformers makes of a template; None for one that runs for seconds."""

    def late(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    try:
        conversations = [chat._normalize_chat_messages(messages)]
        variables = {"bos_token": "<s>", "eos_token": "</s>", **variables}
        text, spans = chat.render_jinja_template(
            conversations, chat_template=template, return_assistant_tokens_mask=True, **variables
        )
        return {"text": text[0], "spans": [list(span) for span in spans[0]]}
    except TimeoutError:
        return None
    except Exception as error:
        kind = type(error).__name__
        return {"error": "raise_exception" if type(error) is jinja2.exceptions.TemplateError else kind}
    finally:
        signal.alarm(0)


ctx = {"s":"Hello, World", "u":"İé ß\u001c ǆΣς \u2028x\u00a0", "e":"", "w":"  pad\t\n", "i":7, "neg":-3, "z":0, "f":2.5, "g":1e22, "h":1e-7, "nf":-0.0, "big":123456789012345678901, "b":True, "nb":False, "no":None,
  "l":[3,1,2], "ls":["b","A","c","a"], "lm":[1,"a",None,2.5,True,[1,2],{"k":1}], "el":[], "d":{"a":1,"b":[1,2],"items":5,"C":None}, "ed":{}, "dd":{"x":{"y":{"z":"deep"}},"1":"one","keys":"k"},
  "lo":[{"n":"x","v":1,"t":{"q":2}},{"n":"Y","v":3.0,"t":{"q":1}},{"n":"z","v":None},{"v":2}], "ml":"a\nb\r\n\nc\n", "q":"it's \"q\" \\ \x07 \x7f é\u200b\U0001f600", "html":"<a href='x'>&\"</a>", "num":"42", "fl":"3.75", "pct":"%s-%d", "br":"{} {0}", "cs":"a,b,,c", "ff":[0.1,0.5,1.5,2.5,2.675,1e16,123456.789,-1.5]}
names = list(ctx)
strs=["s","u","e","w","ml","q","html","num","fl","cs"]; lists=["l","ls","lm","el","lo","ff"]; dicts=["d","ed","dd"]; nums=["i","neg","z","f","g","h","nf","big","b"]
lits = ["1","0","-1","2","3","10","1.5","0.1","1e3","100","'a'","' '","','","'x'","''","'\\n'","'é'","none","true","false","[]","{}","[1, 2]","['a', 'b']","{'a': 1}","(1, 2)","(1,)","()","'Ab c-d'","\"it's\"","1_000","0x1F","5e-324","'%s'","'%d %s'","3.0","1e16","1e15", "12345678.9", "undefd","'\\u00e9\\x41\\101\\q'", "'A' 'b'"]
def L(k, d):
    f = {"s":strs,"l":lists,"d":dicts,"n":nums}[k]
    return R.choice(f)
def ex(d=3):
    if d <= 0 or R.random() < .12: return R.choice(names) if R.random()<.65 else R.choice(lits)
    c = R.randrange(24)
    if c <= 1: return f"{ex(d-1)} {R.choice(['+','-','*','/','//','%','**','~','~','+'])} {ex(d-1)}"
    if c == 2: return f"({ex(d-1)} {R.choice(['==','!=','<','>','<=','>=','in','not in'])} {ex(d-1)})"
    if c == 3: return f"({ex(d-1)} {R.choice(['and','or'])} {ex(d-1)})"
    if c == 4: return f"(not {ex(d-1)})"
    if c == 5: return f"({ex(d-1)} if {ex(d-1)} else {ex(d-1)})"
    if c == 6: return f"{at(d)}[{ex(d-2)}]"
    if c == 7: return f"{at(d)}[{R.choice(['','1','-2','0','2','-1','100'])}:{R.choice(['','1','-1','3','-100'])}{R.choice(['',':',':2',':-1',':-2'])}]"
    if c == 8: return f"{at(d)}.{R.choice(['a','b','items','x','keys','n','0','1','foo','get','k','v','x.y','x.y.z','C'])}"
    if c in (9,10,11): return smeth(d)
    if c == 12: return dmeth(d)
    if c in (13,14,15,16): return f"{at(d)}|{filt(d)}"
    if c == 17: return f"({at(d)} is {R.choice(['','not '])}{test(d)})"
    if c == 18: return f"[{', '.join(ex(d-1) for _ in range(R.randrange(4)))}]"
    if c == 19: return f"{{{', '.join(R.choice(['1','2.0','true','none',chr(39)+'a'+chr(39),chr(39)+'b'+chr(39),'(1, 2)','s','i'])+': '+ex(d-1) for _ in range(R.randrange(4)))}}}"
    if c == 20: return f"{R.choice(['-','+'])}{at(d)}"
    if c == 21: return R.choice([f"range({R.choice(['3','1, 4','5, 0, -2','i','0'])})", f"range({ex(d-2)})", f"dict(a={ex(d-1)})", f"dict({L('d',d)}, z={ex(d-1)})", f"dict({ex(d-1)})", "namespace(a=1).a", f"joiner('; ')()", f"cycler(1, 2).next()", f"dict.fromkeys({L('l',d)}, 0)"])
    if c == 22: return f"({ex(d-1)}, {ex(d-1)})"
    return f"({ex(d-1)})"
def at(d):
    if R.random() < .55: return R.choice(names)
    if R.random() < .3: return R.choice(lits[10:])
    return f"({ex(d-1)})"
def smeth(d):
    o = R.choice(strs + ["'Ab c-d'","' x '"]) if R.random() < .85 else at(d)
    a = R.choice(["'a'","' '","','","'l'","'é'","'\\n'","'ab'","''","' x'","none","1", "ex"]);  a = ex(d-2) if a == "ex" else a
    return o + "." + R.choice([f"strip({R.choice(['',a])})",f"lstrip({R.choice(['',a])})",f"rstrip({R.choice(['',a])})","upper()","lower()","title()","capitalize()","swapcase()","casefold()",f"split({R.choice(['',a,a+', 1','none, 1','maxsplit=1','sep='+a])})",f"rsplit({R.choice(['',a,a+', 1','none, 1'])})","splitlines()","splitlines(true)",f"partition({a})",f"rpartition({a})",f"replace({a}, 'Z')",f"replace({a}, 'ZZ', {R.choice(['1','-1','0'])})",f"startswith({a})",f"endswith({a})",f"startswith({a}, 1)",f"startswith(('H', 'a'))",f"endswith({a}, 0, -1)",f"find({a})",f"rfind({a})",f"index({a})",f"find({a}, 2)",f"count({a})",f"count({a}, 1, -1)",f"join({L('l',d)})",f"join({ex(d-1)})","isdigit()","isalpha()","isalnum()","isspace()","isupper()","islower()","istitle()","isnumeric()","isdecimal()","isidentifier()","isprintable()","isascii()","zfill(8)",f"ljust(14{R.choice(['', ', '+a])})","rjust(14, '*')","center(15, '-')","center(14)","expandtabs()","expandtabs(4)",f"format({ex(d-1)}, {ex(d-1)})",f"removeprefix({a})",f"removesuffix({a})","encode()","translate({97: 'X'})", "__len__()", "foo()"])
def dmeth(d):
    return R.choice([f"{L('d',d)}.get({ex(d-2)})",f"{L('d',d)}.get('a', {ex(d-1)})",f"{L('d',d)}.items()|list",f"{L('d',d)}.items()",f"{L('d',d)}.keys()",f"{L('d',d)}.values()|list",f"{L('d',d)}.copy()",f"{L('l',d)}.index({ex(d-2)})",f"{L('l',d)}.count({ex(d-2)})",f"{L('l',d)}.copy()",f"{L('l',d)}.append(1)",f"{L('d',d)}.pop('a')",f"{L('d',d)}.update({{'z': 1}})", f"dd.keys", f"({L('l',d)}, 1).count(1)", f"d.setdefault('q', 1)", f"{L('n',d)}.real", f"{L('n',d)}.bit_length()", f"f.is_integer()", f"d.fromkeys('ab')"])
def filt(d):
    a = ex(d-2)
    f = R.choice(["upper","lower","title","capitalize","trim",f"trim({R.choice([chr(39)+'a '+chr(39),a])})","length","count","first","last","list","string","int",f"int({R.choice(['1','5, 16','base=2','default=9'])})","float","float(1.5)","abs","round","round(1)","round(2, 'floor')","round(0, 'ceil')","round(-1)","round(1, 'ceil')","sum","sum(start=1)","sum(attribute='v')","min","max","min(attribute='v')","sort","sort(reverse=true)","sort(case_sensitive=true)","sort(attribute='v')","sort(attribute='n')","sort(attribute='t.q')","sort(attribute='v,n')","unique|list","unique(case_sensitive=true)|list","reverse|list","reverse","join",f"join({a})","join('-')","join(', ', attribute='n')","map('upper')|list","map(attribute='v')|list","map(attribute='t.q', default='D')|list","map('string')|join","map('int')|list","select|list","reject|list","select('string')|list","select('number')|list","selectattr('v')|list","selectattr('v', 'defined')|list","selectattr('n', 'equalto', 'x')|list","rejectattr('t')|map(attribute='n')|list","select('in', [1, 'a'])|list","default('D')",f"default({a}, true)","d('x')","replace('a', 'b')",f"replace('l', '', 1)","tojson","tojson(indent=2)","tojson(indent=0)","tojson(indent='\\t')","tojson(ensure_ascii=true)","tojson(sort_keys=true)","tojson(separators=(',', ':'))","tojson(indent=4, sort_keys=true)","tojson(indent=-1)","tojson(true)","dictsort","dictsort(by='value')","dictsort(true, 'key', true)","items|list","items","batch(2)|list","batch(2, 'x')|list","slice(2)|list","slice(3, 'f')|list","indent","indent(2, true)","indent(3, blank=true)","indent('> ')","wordcount","escape","e","safe","forceescape","center(20)","truncate(5)","truncate(5, true)","truncate(7, true, '..', 0)","wordwrap(5)","urlencode","striptags","filesizeformat","format('x', 1)","format(a=1)","groupby('v')|list","groupby('t.q')|list","groupby('n', default='')|list","pprint","random","xmlattr","attr('a')","attr('upper')","foo","urlize","map('foo')|list","map('round', 1)|list","select('odd')|list","map('default', 'q')|list", "map(attribute='items')|list","map('attr', 'a')|list","map(attribute=0)|list"])
    return f + ("|" + filt(d-1) if R.random() < .15 else "")
def test(d):
    return R.choice(["defined","undefined","none","string","number","integer","float","boolean","true","false","mapping","sequence","iterable","callable","odd","even","lower","upper","escaped","divisibleby(2)","divisibleby 3",f"eq({ex(d-2)})",f"in({ex(d-2)})","sameas none","sameas(true)","equalto 1","gt 1","lt(2)","ne 'a'","ge 1","filter","test",f"sameas({ex(d-2)})", "foo", "in 'abc'", "divisibleby(0)", "== 1", "greaterthan 1"])
def stmt(d=2):
    c = R.randrange(22)
    b = lambda: body(d-1) if d > 0 else "x"
    ws = lambda: R.choice(["","","-","+"])
    o, cl = "{%"+ws(), ws()+"%}"
    def t(x): return "{%"+ws()+" "+x+" "+ws()+"%}"
    if c <= 2: return "{{"+R.choice(["","","-"])+" "+ex(3)+" "+R.choice(["","","-"])+"}}"
    if c == 3: return t("if "+ex(2))+b()+R.choice(["",t("elif "+ex(2))+b()])+R.choice(["",t("else")+b()])+t("endif")
    if c <= 6: return t(f"for x in {R.choice([ex(2),L('l',d),L('s',d),'range(3)'])}"+R.choice([""," if x"," if x is string", " if loop.first"]) )+R.choice(["{{ x }}","{{ loop.index }}{{ x }}{{ loop.last }}","{{ loop.revindex }},{{ loop.length }}","{{ loop.cycle('a','b') }}","{{ loop.previtem }}{{ loop.nextitem }}","{% if loop.changed(x) %}c{% endif %}","{% if loop.index > 1 %}{% break %}{% endif %}{{ x }}","{% if loop.first %}{% continue %}{% endif %}{{ x }}","{% set y = x %}{{ y }}","{{ loop.index0 }}{{ loop.depth }}{{ loop.revindex0 }}", "{{ loop }}"])+b()+R.choice(["",t("else")+b()])+t("endfor")
    if c == 7: return t(f"for k, v in {R.choice(['d.items()','dd|items','d|dictsort','lo','[(1,2),(3,4)]','ls','lm|batch(2)'])}")+"{{ k }}={{ v }};"+t("endfor")
    if c == 8: return t(f"set {R.choice(['s','i','y','l'])} = {ex(3)}")+"{{ y }}{{ i }}"
    if c == 9: return t("set y")+b()+t("endset")+"{{ y"+R.choice(["","|upper","|length","|trim"])+" }}"
    if c == 10: return "{% set ns = namespace(c=0, s='') %}{% for x in "+L('l',d)+" %}{% set ns.c = ns.c + 1 %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.c }}{{ ns.s }}{{ ns.zz }}"
    if c == 11: return t("macro m(a, b='d', c=none)")+"[{{ a }}|{{ b }}|{{ c }}"+R.choice(["","{{ varargs }}","{{ kwargs }}","{{ caller is defined }}","{{ s }}"])+"]"+t("endmacro")+"{{ m("+R.choice(["","1","1, 2","b=3","1, c=x","1,2,3","1,2,3,4","q=1","a=1, b=2", ex(2)])+") }}"
    if c == 12: return t("call m2()")+b()+t("endcall") if R.random()<.1 else "{% macro m2(p) %}<{{ caller() }}|{{ p }}>{% endmacro %}{% call m2("+ex(1)+") %}"+b()+"{% endcall %}"
    if c == 13: return t("filter "+R.choice(["upper","trim","indent(2)","replace('a','b')","upper|trim","length"]))+b()+t("endfilter")
    if c == 14: return t("with y = "+ex(2)+R.choice([""," , z = s"]))+"{{ y }}{{ z }}"+b()+t("endwith")+"{{ y }}"
    if c == 15: return t("generation")+b()+t("endgeneration")
    if c == 16: return R.choice(["{# c #}","{#- c -#}","  {#c#}  \n","\n{# x #}\n"])
    if c == 17: return t("raw")+"{{ x }} {% if %}"+t("endraw")
    if c == 18: return R.choice(["{{ raise_exception('no ' ~ "+ex(1)+") }}" if R.random()<.15 else "x","{{ strftime_now('%d %b %Y') }}","{{ strftime_now('%A %j %-d') }}"])
    if c == 19: return "{% for m in messages %}{{ m.role }}{{ m['content'] }}{{ m.tool_calls is defined }}{% endfor %}"
    if c == 20: return "{% set a, b = "+R.choice(["1, 2","(1, 2)","'xy'","[1, 2, 3]","d.items()|list",ex(2)])+" %}{{ a }}{{ b }}"
    return t("if messages[0]['role'] == 'system'")+b()+t("else")+"n"+t("endif")
def body(d=2):
    return "".join(R.choice([""," ","\n","  \n","a","\n  ","text "]) + stmt(d) + R.choice([""," ","\n","\n\n","b"]) for _ in range(R.randrange(1,4)))

MESSAGES = [
    {"role": "user", "content": "Hi", "name": None},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.0}}}]},
]
with open(sys.argv[3], "w") as out:
    shared = {"messages": json.dumps(MESSAGES, ensure_ascii=False), "variables": json.dumps(ctx, ensure_ascii=False)}
    print(json.dumps({**shared, "date": "2026-03-05T09:07:03"}), file=out)
    left = int(sys.argv[2])
    while left > 0:
        template = "{{ " + ex(3) + " }}" if R.random() < 0.6 else body(2)
        made = None if len(template) > 220 or "random" in template else rendered(template, MESSAGES, ctx)
        # Do not keep memory addresses and long texts.
        if made is None or "0x7f" in made.get("text", "") or len(made.get("text", "")) > 300:
            continue
        print(json.dumps({"t": template, **{name: value for name, value in made.items() if value}}), file=out)
        left -= 1
