"""Words the splitter has to know, by language: function words, starters, abbreviations. Data only.

The abbreviations were collected for the gaps of sentencex's lists, by asking it about the common
ones of each language. All words are lower-case; a "." inside stays, the last one goes.
"""

from __future__ import annotations


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _sets(lists: dict[str, str]) -> dict[str, frozenset[str]]:
    return {language: _set(words) for language, words in lists.items()}


# The commonest function words of each language that few of the others share.
FUNCTION_WORDS = _sets(
    {
        "en": "the and of is are was were you it that this with for not have they i he she my your "
        "at be will would can what how but which there their from his her we our been has had "
        "do does to about into than more when if so just like get there's i'm it's don't "
        "can't who me him could should very because through here need want make",
        "de": "der die das und ist nicht ein eine einen einem einer mit auf für von dem den im zu "
        "sich ich sie wir er es ihr auch wird sind war haben hat wie oder aber dass bei nach "
        "noch nur vom zum zur am kann wenn durch wurde wurden worden sehr mehr schon über "
        "unter zwischen seine ihre kein keine diese dieser dieses man mich mir dich uns hier "
        "dann doch gibt muss können werden habe guten bitte danke ihnen",
        "fr": "le la les des et est une un du dans que qui pour pas sur avec ce cette il elle nous "
        "vous je au aux sont être ou mais par plus ne se sa son ses leur c'est d'une qu'il "
        "été ils c'était très bien fait faire a-t-il y ont avait même si où comme mon ma mes "
        "votre notre leurs après avant cet ces tout tous aussi bonjour merci aujourd'hui j'ai "
        "n'est l'on qu'on quand",
        "es": "el la los las y es una un del en que por para con no se su sus lo al como más pero "
        "está están fue son muy este esta hay ya ser también cuando desde sobre él ella ellos "
        "nos me te le les ha han había porque entre hasta sin si todo todos buenos buenas "
        "días gracias hola soy eres tiene tengo hacer puede donde",
        "it": "il la i gli le e è una un del della dei nel nella che per con non si di da sono come "
        "più ma questo questa al alla ha hanno suo sua anche delle degli era nei sulla sul "
        "dalla dal alle ai tra fra ci mi ti lo ed ho hai abbiamo molto tutto tutti dove "
        "quando cosa perché grazie buongiorno salve essere stato fare suoi ecco qui",
        "pt": "o a os as e é uma um do da dos das no na nos nas que por para com não se seu sua em "
        "ao mais mas está são foi ser também como muito isso este esta você já ele ela eles "
        "pelo pela até entre sem me te lhe há tem ter foram aqui onde quando porque obrigado "
        "bom dia olá seus meu minha",
    }
)

# A name, a noun or a number belongs to it: never the end of a sentence.
TITLES = _sets(
    {
        "en": "mr mrs ms mx dr drs prof messrs mlle mme gen col lt maj capt cmdr adm sgt cpl pvt rev "
        "fr hon pres gov sen rep reps sens amb st ste mt mts vs cf viz approx ca e.g i.e esp incl "
        "et.al resp",
        "de": "dr prof hr hrn fr frl st nr bzw ca vgl evtl ggf sog inkl exkl zzgl abzgl bspw z.b d.h "
        "u.a i.d.r v.a s.o s.u o.g u.u z.t z.z i.v i.a m.e geb dipl ing mag hl kath ev insb max "
        "mind abs abb bd tab kap art tel allg bes jew ehem ehemal gem lt abt dt engl frz lat ggü dr.med",
        "fr": "m mm mme mmes mlle mlles me dr drs pr prof st ste sts bd boul av cf env éd ex p.ex "
        "c.-à-d c-à-d max min av.j.-c resp ing mgr",
        "es": "sr sra sres sras srta srtas dr dra dres d dª dña fr ud uds vd vds prof profa ing lic arq "
        "mons gral cnel tte cap sgto excmo excma ilmo ilma sto sta p.ej ej av avda avd pza aprox "
        "ed cra fco gob min máx mín",
        "it": "sig sigg sig.ra sig.na dott dott.ssa dr dr.ssa prof prof.ssa proff ing avv arch geom "
        "rag on sen s ss st spett gent gent.mo gent.ma egr ill cav comm mons fra p.es ad.es es cfr "
        "ca v ed dir",
        "pt": "sr sra sres sras srta dr dra drs dras prof profa profs eng arq exmo exma sto sta v.exa "
        "exa d dom gen cel cap ten sgt maj av p.ex ex r pça aprox ed rev mons pe min máx ilmo ilma",
        "ru": "ул им пл пр-т просп пер бул наб пос дер оз св проф акад доц канд инж ред изд зам зав "
        "нач см ср напр т.е т.н г-н г-жа гр ок обл р-н кн перев сост",
    }
)

# A number, a roman numeral or a letter belongs to it; before a word it may end a sentence.
BEFORE_NUMBERS = _sets(
    {
        "en": "no nos vol vols ch sec secs p pp fig figs eq eqs art ref refs app ex ext tel par para "
        "n nr ver v pt c est jan feb mar apr jun jul aug sep sept oct nov dec",
        "de": "nr s seite bd abb abs art kap tab ziff tel jan feb mär apr jun jul aug sep sept okt nov "
        "dez zl z",
        "fr": "p pp n no n° nº nos art chap fig vol t tél tel janv févr avr juil sept oct nov déc sect "
        "al éq",
        "es": "n no núm nº n° n.º art arts cap caps fig figs pág págs pag pags p vol tel teléf ext ene "
        "feb mar abr jun jul ago sep sept oct nov dic lun mié jue vie sáb dom",
        "it": "n nr n° nº art artt cap capp fig figg pag pagg p pp vol sec tel gen feb mar apr mag giu "
        "lug ago set sett ott nov dic lun mer gio ven sab dom",
        "pt": "n no nº n° n.º núm art arts cap caps fig figs pág págs p pp vol tel jan fev mar abr mai "
        "jun jul ago set out nov dez",
        "ru": "п пп гл ч рис табл ст с стр т тт вып № н д кв к корп стр тел илл ил разд янв фев февр "
        "апр авг сент окт нояб дек",
    }
)

# May well end a sentence: it does if a word follows that sentences begin with.
TAILS = _sets(
    {
        "en": "etc inc ltd co corp jr sr bros dept univ assn ave blvd rd esq ph.d m.d b.a m.a b.sc m.sc "
        "d.c u.s u.s.a u.k e.u u.n a.m p.m b.c a.d al",
        "de": "v.chr n.chr chr usw etc str co mio mrd jh jhd std min sek stk gmbh",
        "fr": "etc hab j.-c ltd cie sarl",
        "es": "etc ee.uu uu s.a a.c d.c cía ltda hab hs km min seg h",
        "it": "ecc etc a.c d.c s.p.a s.r.l",
        "pt": "etc s.a a.c d.c ltda cia hab h min",
        "ru": "г гг в вв т.д т.п др пр н.э руб коп тыс млн млрд чел экз мин сек ч ч.л ст.л км м см кг "
        "л куб кв.м куб.м м.кв",
    }
)

# Of these, the ones nobody follows with a name: any capital after them begins a sentence.
CLOSING_TAILS = _sets(
    {
        "en": "etc",
        "de": "usw etc",
        "fr": "etc hab j.-c",
        "es": "etc hab",
        "it": "ecc etc",
        "pt": "etc hab",
        "ru": "т.д т.п др н.э руб коп ч.л ст.л",
    }
)

# Words that sentences begin with, beside the function words of the language.
STARTERS = _sets(
    {
        "en": "the a an i it its he she we they you this that these those there here in on at for from "
        "with when while if as after before but and or so because since although however then now "
        "what why how who where which my his her our your their no not yes some many most all both "
        "each one two let today it's that's there's he's she's we're they're you're i'm i've",
        "de": "der die das ein eine er sie es wir ihr ich du man dies diese dieser dieses hier dort da "
        "dann danach und aber oder doch denn wenn als ob weil im in am an auf bei mit nach von vor "
        "zu zum zur auch nur so wie was wer wo warum heute jetzt nun alle viele einige kein keine "
        "sein ihre seine mein unser jeder jede",
        "fr": "le la les l'on un une des il elle ils elles on nous vous je tu ce cet cette ces c'est "
        "cela ça ici là et mais ou donc car si quand comme dans en au aux à pour par sur avec sans "
        "après avant puis ensuite alors que qui quoi où pourquoi son sa ses leur leurs mon ma notre "
        "votre tout tous toutes",
        "es": "el la los las un una unos unas él ella ellos ellas yo tú nosotros usted este esta esto "
        "estos ese esa eso aquí allí y e o pero si cuando como en por para con sin tras desde hasta "
        "entonces luego después antes ahora hoy que qué quién dónde cómo su sus mi nuestro se no sí "
        "también todo todos lo al",
        "it": "il lo la i gli le un uno una egli ella lui lei noi voi loro io tu questo questa questi "
        "quello quella qui là e ed o ma se quando come in per con senza dopo prima poi allora oggi "
        "ora che chi dove perché suo sua suoi mio nostro non sì anche tutto tutti nel nella al alla "
        "si c'è è",
        "pt": "o a os as um uma uns umas ele ela eles elas eu tu nós você vocês este esta isto esse essa "
        "isso aqui ali e ou mas se quando como em por para com sem após depois antes então agora hoje "
        "que quem onde porque seu sua seus meu nosso não sim também todo todos no na nos nas ao",
        "ru": "он она оно они я ты мы вы это этот эта эти тот та те здесь там и а но или если когда как "
        "в во на по с со к из у от для до после перед потом затем тогда теперь сейчас сегодня что кто "
        "где почему его её ее их мой наш не нет да также все всё каждый однако так при за о об",
    }
)

# While the language is not known yet, the abbreviations of all of them count, except these, which
# are words of another.
WORDS_OF_ANOTHER = _set(
    "art on es ex cap ten max min mag tab gem dom set out mar mai sec par pt no sen gen med con die "
    "sag ver est fra ca se ago jan oct p al comm dir ed fund van col maj lt"
)

# After a number these are units: a capital after them begins a sentence. Otherwise they are what
# the lists above say.
UNITS = _set(
    "ft in lb lbs oz mi yd yds gal pt qt hr hrs min mins sec secs kg g mg km m cm mm l ml km/h mph sq cu "
    "std sek stk seg h кг г км м см мм л мл мин сек ч"
)

GERMAN_BEFORE_ORDINALS = _set(
    "der die das den dem des am im vom zum zur beim ein eine einen einem einer bis ab seit jeder jede "
    "jedes jeden sein seine seinen seinem ihr ihre ihren ihrem und oder ins unser dieser dieses "
    "diesen diesem mein dein kein"
)
GERMAN_MONTHS = _set(
    "januar jänner februar märz april mai juni juli august september oktober november dezember "
    "jan feb mär apr jun jul aug sep sept okt nov dez jahrhundert jahrhunderts jh"
)
