"""Names of months and weekdays, and digits, in the languages that prompts are written in."""

# ruff: noqa: RUF001 (the letters of other alphabets are meant)

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# January first: English, German, French, Spanish, Portuguese, Italian, Dutch, Swedish, Russian, Polish, Turkish and
# Arabic.
MONTHS = (
    "january jan januar jänner janvier janv enero ene janeiro gennaio gen januari январь января янв styczeń stycznia "
    "sty ocak oca يناير",
    "february feb februar février févr fév febrero fevereiro fev febbraio februari февраль февраля фев luty lutego lut "
    "şubat şub فبراير",
    "march mar märz mrz mär mars marzo março maart mrt март марта marzec marca mart مارس",
    "april apr avril avr abril abr aprile апрель апреля апр kwiecień kwietnia kwi nisan nis أبريل",
    "may mai mayo maio maggio mag mei maj май мая maja mayıs مايو",
    "june jun juni juin junio junho giugno giu июнь июня июн czerwiec czerwca cze haziran haz يونيو",
    "july jul juli juillet juil julio julho luglio lug июль июля июл lipiec lipca lip temmuz tem يوليو",
    "august aug août aout agosto ago augustus augusti август августа авг sierpień sierpnia sie ağustos ağu أغسطس",
    "september sept sep septembre septiembre setembro set settembre сентябрь сентября сент сен wrzesień września wrz "
    "eylül eyl سبتمبر",
    "october oct oktober okt octobre octubre outubro out ottobre ott октябрь октября окт październik października paź "
    "ekim eki أكتوبر",
    "november nov novembre noviembre novembro ноябрь ноября нояб ноя listopad listopada lis kasım kas نوفمبر",
    "december dec dezember dez décembre déc diciembre dic dezembro dicembre декабрь декабря дек grudzień grudnia gru "
    "aralık ara ديسمبر",
)
# Month names that are everyday words as well: next to a day alone they say nothing, only with a year behind it.
EVERYDAY = names(
    "may mar mars mart march set out ago gen lis sie tem lip mag mai maj mei lut ara kas cze eki oca haz nis sty gru "
    "nov dec dez dic ott sep jan"
)
WEEKDAYS = names(
    "monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag "
    "sonnabend sonntag lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes "
    "sábado domingo segunda-feira terça-feira quarta-feira quinta-feira sexta-feira lunedì martedì mercoledì giovedì "
    "venerdì sabato domenica maandag dinsdag woensdag donderdag vrijdag zaterdag zondag måndag tisdag onsdag torsdag "
    "fredag lördag söndag понедельник вторник среда четверг пятница суббота воскресенье poniedziałek wtorek środa "
    "czwartek piątek sobota niedziela pazartesi salı çarşamba perşembe cuma cumartesi pazar الاثنين الثلاثاء الأربعاء "
    "الخميس الجمعة السبت الأحد"
)
# Only read as weekdays next to a date.
SHORT_WEEKDAYS = names(
    "mon tues tue wed thurs thur thu fri sat sun lun mar mer jeu ven sam dim mo di mi do fr sa so seg ter qua qui "
    "sex sáb dom mié jue vie gio пн вт ср чт пт сб вс"
)
# Japanese years are counted from the emperor's first.
ERAS = {"令和": 2018, "平成": 1988}

# Digits of other scripts, full-width separators, and the spaces that JavaScript's toLocaleString puts before AM and PM.
ASCII = str.maketrans(
    {
        **{chr(zero + n): str(n) for zero in (0x660, 0x6F0, 0x966, 0x9E6, 0xE50, 0xFF10) for n in range(10)},
        "\uff1a": ":",
        "\uff0f": "/",
        "\uff0e": ".",
        "\uff0d": "-",
        "\u2011": "-",
        "\u202f": " ",
        "\u00a0": " ",
    }
)


def in_ascii(text: str) -> str:
    """The text with ASCII digits and separators, character for character."""
    return text if text.isascii() else text.translate(ASCII)
