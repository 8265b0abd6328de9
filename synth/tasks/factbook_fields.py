"""The catalogue of fields that the factbook suite asks about, with everyday phrasings that no two pools share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from providers.types import Split

PEOPLE, GEOGRAPHY, ENVIRONMENT, ECONOMY = "People and Society", "Geography", "Environment", "Economy"
GOVERNMENT, ENERGY, COMMUNICATIONS = "Government", "Energy", "Communications"


@dataclass(frozen=True)
class Contrast:
    """A warm-up phrasing with its constraint changed, and the label that it then means: the bait of a trap."""

    phrasing: str
    label: str
    changed: str


@dataclass(frozen=True)
class Field:
    """One label of the site. `name` is almost the label; the phrasings go around its words.

    Names are nouns that stand after "the"; phrasings are noun phrases with a slot `{c}` for a country, for "a country"
    or for "the country whose ...". `contrasts` change the first warm-up phrasing.
    """

    label: str
    section: str
    name: str
    warmup: tuple[str, ...]
    explore: tuple[str, ...]
    dev: tuple[str, ...]
    test: tuple[str, ...]
    kind: Literal["number", "text"] = "number"
    unit: str = ""
    """What a bare figure counts, for answers that say so."""
    contrasts: tuple[Contrast, ...] = ()

    def phrasings(self, split: Split) -> tuple[str, ...]:
        return {
            Split.WARMUP: self.warmup,
            Split.EXPLORE: self.explore,
            Split.DEV: self.dev,
            Split.TEST: self.test,
        }[split]


_PEOPLE_FIELDS = (
    Field(
        "Median age - total",
        PEOPLE,
        "median age",
        warmup=(
            "the age that splits the people of {c} into two equal halves",
            "the age that every second person in {c} has already passed",
        ),
        explore=(
            "how old somebody in the very middle of {c}'s birthday queue would be",
            "the midpoint when all residents of {c} stand in order from youngest to oldest",
        ),
        dev=(
            "the years lived by the most ordinary inhabitant of {c}, with as many seniors above as juniors below",
            "the fiftieth percentile of how many candles citizens of {c} blow out",
        ),
        test=(
            "the dividing line between the greener and the greyer part of {c}, both parts the same size",
            "the central lifetime reached so far among everyone alive in {c}",
        ),
        contrasts=(
            Contrast("the age that splits the women of {c} into two equal halves", "Median age - female", "women"),
            Contrast("the age that splits the men of {c} into two equal halves", "Median age - male", "men"),
        ),
    ),
    Field(
        "Life expectancy at birth - female",
        PEOPLE,
        "female life expectancy at birth",
        warmup=(
            "how many years a newborn girl in {c} can hope to live",
            "the number of years that a baby daughter in {c} has ahead of her on average",
        ),
        explore=(
            "how long women in {c} usually last from cradle to grave",
            "the typical lifespan of ladies from {c}",
        ),
        dev=(
            "the age at which a wife, mother or aunt in {c} is usually laid to rest",
            "what birthday grandmothers in {c} tend to attain",
        ),
        test=(
            "the longevity foreseen for the fair sex of {c}",
            "how far through the decades Mrs Average of {c} generally makes it",
        ),
        contrasts=(
            Contrast(
                "how many years a newborn boy in {c} can hope to live",
                "Life expectancy at birth - male",
                "boy for girl",
            ),
        ),
    ),
    Field(
        "Infant mortality rate - total",
        PEOPLE,
        "total infant mortality rate",
        warmup=(
            "how many babies per thousand in {c} do not see their first birthday",
            "the share of little ones in {c} who are lost before they turn one",
        ),
        explore=(
            "how often newborns in {c} die within twelve months",
            "the toll among children of less than a year in {c}",
        ),
        dev=(
            "the frequency with which an infant of {c} perishes while still in the cradle",
            "the risk that a family in {c} buries its youngest before it can talk",
        ),
        test=(
            "the losses among the smallest, counted against every 1,000 deliveries in {c}",
            "the odds in {c} of a suckling passing away ahead of learning to walk",
        ),
        contrasts=(
            Contrast(
                "how many baby boys per thousand in {c} do not see their first birthday",
                "Infant mortality rate - male",
                "boys",
            ),
            Contrast(
                "how many baby girls per thousand in {c} do not see their first birthday",
                "Infant mortality rate - female",
                "girls",
            ),
        ),
    ),
    Field(
        "Total fertility rate",
        PEOPLE,
        "total fertility rate",
        warmup=(
            "how many children a woman in {c} has in the course of her life",
            "the number of sons and daughters that the average mother in {c} raises",
        ),
        explore=(
            "the usual size of a brood in {c}, per female",
            "how many kids ladies in {c} typically give birth to altogether",
        ),
        dev=(
            "the mean offspring tally of one adult female in {c}",
            "how many times somebody in {c} becomes a mum, taken overall",
        ),
        test=(
            "the babies borne by each lady across her reproductive span in {c}",
            "how large a progeny a wife in {c} leaves behind",
        ),
    ),
    Field(
        "Death rate",
        PEOPLE,
        "death rate",
        warmup=(
            "how many of every thousand inhabitants of {c} pass away in a year",
            "the yearly number of funerals in {c} for each thousand people",
        ),
        explore=(
            "how often people die in {c} relative to its size",
            "the annual mortality across the whole populace of {c}",
        ),
        dev=(
            "the pace at which residents of {c} leave this world",
            "the fatalities recorded among 1,000 citizens of {c} within twelve months",
        ),
        test=(
            "the share of the nation in {c} that is lost to the cemetery each calendar round",
            "the per-mille frequency of lives ending in {c}",
        ),
    ),
    Field(
        "Net migration rate",
        PEOPLE,
        "net migration rate",
        warmup=(
            "how many more people move to {c} than leave it, for every thousand who live there",
            "the balance of newcomers and leavers in {c} per thousand inhabitants",
        ),
        explore=(
            "the difference between arrivals and departures of settlers in {c}",
            "how strongly {c} gains or loses residents who cross its frontier for good",
        ),
        dev=(
            "the surplus of immigrants over emigrants in {c}",
            "the extent to which folk relocating abroad outnumber those coming into {c}, or the reverse",
        ),
        test=(
            "the inflow minus the outflow of human beings at the borders of {c}",
            "whether and how quickly {c} fills up or empties through foreigners entering and nationals going away",
        ),
    ),
    Field(
        "Maternal mortality ratio",
        PEOPLE,
        "maternal mortality ratio",
        warmup=(
            "how many mothers in {c} die while giving birth, for a hundred thousand babies",
            "how dangerous childbirth is for mothers in {c}",
        ),
        explore=(
            "the number of women in {c} whose pregnancy ends with their own death",
            "the fatal share of confinements for ladies in {c}",
        ),
        dev=(
            "the toll that labour and delivery takes among parents-to-be in {c}",
            "how frequently bearing a child costs a wife her life in {c}",
        ),
        test=(
            "the lethal risk of carrying and having a baby in {c}",
            "the obstetric losses of adult females in {c}",
        ),
    ),
    Field(
        "Physician density",
        PEOPLE,
        "physician density",
        warmup=(
            "how many doctors {c} has for every thousand people",
            "the number of doctors who look after a thousand inhabitants in {c}",
        ),
        explore=(
            "how well {c} is supplied with medical practitioners",
            "the concentration of medics among the residents of {c}",
        ),
        dev=(
            "the quantity of GPs and surgeons per 1,000 citizens in {c}",
            "the ratio of people with a licence to heal to patients in {c}",
        ),
        test=(
            "how thickly clinicians are spread over {c}",
            "the availability of those in white coats who diagnose and prescribe in {c}",
        ),
    ),
    Field(
        "Obesity - adult prevalence rate",
        PEOPLE,
        "adult prevalence rate of obesity",
        warmup=(
            "what part of the grown-ups in {c} is far too heavy",
            "the share of grown-ups in {c} who weigh much more than is healthy",
        ),
        explore=(
            "how widespread extreme overweight is in {c}",
            "the proportion of men and women in {c} with a very high body mass index",
        ),
        dev=(
            "how common it is to be badly fat in {c}",
            "the percentage of people past eighteen in {c} carrying an excessive waistline",
        ),
        test=(
            "the fraction of the mature populace in {c} with a BMI beyond thirty",
            "how many out of a hundred in {c} ought urgently to slim down",
        ),
    ),
    Field(
        "Alcohol consumption per capita - beer",
        PEOPLE,
        "alcohol consumption per capita from beer",
        warmup=(
            "how much a person in {c} drinks in the form of beer",
            "the amount of pure alcohol that people in {c} take from lager and stout",
        ),
        explore=(
            "the litres which brewers provide to each drinker's intake in {c}",
            "what the average resident of {c} gulps down from the brewery",
        ),
        dev=(
            "the contribution of pints and ales to what one citizen of {c} imbibes",
            "how many liters of the strong stuff reach a head in {c} by way of malt and hops",
        ),
        test=(
            "the ethanol swallowed by every inhabitant of {c} through pilsner and the like",
            "the yearly individual helping of suds in {c}, as spirit content",
        ),
        contrasts=(
            Contrast(
                "how much a person in {c} drinks in the form of wine",
                "Alcohol consumption per capita - wine",
                "wine for beer",
            ),
            Contrast(
                "how much a person in {c} drinks in the form of spirits",
                "Alcohol consumption per capita - spirits",
                "spirits for beer",
            ),
        ),
    ),
    Field(
        "Tobacco use - male",
        PEOPLE,
        "tobacco use of males",
        warmup=(
            "the share of men who smoke in {c}",
            "what part of the men of {c} cannot keep off cigarettes",
        ),
        explore=(
            "how common lighting up is among gentlemen in {c}",
            "the proportion of guys with a nicotine habit in {c}",
        ),
        dev=(
            "the percentage of fathers, brothers and sons puffing away in {c}",
            "how many out of a hundred lads in {c} are hooked on the pipe, the cigar and their kin",
        ),
        test=(
            "the fraction of the masculine half of {c} consuming products of that leaf",
            "the frequency of a fag in the mouth for blokes in {c}",
        ),
        contrasts=(Contrast("the share of women who smoke in {c}", "Tobacco use - female", "women for men"),),
    ),
    Field(
        "Education expenditure (% GDP)",
        PEOPLE,
        "education expenditure as a share of GDP",
        warmup=(
            "what part of the economy of {c} goes into schools",
            "the share of everything {c} earns that is spent on schools and teachers",
        ),
        explore=(
            "how much of its output {c} devotes to instruction",
            "the slice of national income that classrooms receive in {c}",
        ),
        dev=(
            "the percentage of the gross product that {c} lays out for learning",
            "the weight of universities, pupils and textbooks in what {c} produces",
        ),
        test=(
            "the portion of yearly wealth creation in {c} channelled toward teaching the young",
            "the fraction of all economic activity that {c} puts into its pedagogical system",
        ),
        contrasts=(
            Contrast(
                "what part of the state budget of {c} goes into schools",
                "Education expenditure (% national budget)",
                "budget for economy",
            ),
        ),
    ),
    Field(
        "Health expenditure (as % of GDP)",
        PEOPLE,
        "health expenditure as a share of GDP",
        warmup=(
            "what part of the economy of {c} goes into hospitals and medicine",
            "the share of everything {c} earns that is spent on caring for the sick",
        ),
        explore=(
            "how much of its output {c} devotes to medical care",
            "the slice of national income that clinics receive in {c}",
        ),
        dev=(
            "the percentage of the gross product that {c} lays out for wellbeing and cures",
            "the weight of nursing, drugs and surgery in what {c} produces",
        ),
        test=(
            "the portion of yearly wealth creation in {c} channelled toward treating patients",
            "the fraction of all economic activity that {c} puts into its wards and doctors",
        ),
        contrasts=(
            Contrast(
                "what part of the state budget of {c} goes into hospitals and medicine",
                "Health expenditure (as % of national budget)",
                "budget for economy",
            ),
        ),
    ),
    Field(
        "Urbanization - urban population",
        PEOPLE,
        "urban population",
        warmup=(
            "what part of the people of {c} lives in towns",
            "the share of people in {c} whose home is in a town",
        ),
        explore=(
            "how many residents of {c} out of a hundred are city dwellers",
            "the proportion of {c} settled in cities rather than in the countryside",
        ),
        dev=(
            "the percentage of inhabitants of {c} found in built-up areas",
            "to what extent {c} is a nation of townsfolk",
        ),
        test=(
            "the fraction of citizens of {c} that the metropolitan zones hold",
            "how large the non-rural segment of {c} is",
        ),
    ),
    Field(
        "Dependency ratios - elderly dependency ratio",
        PEOPLE,
        "elderly dependency ratio",
        warmup=(
            "how many old people there are in {c} for every hundred of working age",
            "the number of pensioners whom a hundred workers in {c} have to support",
        ),
        explore=(
            "the burden that seniors are for those with jobs in {c}",
            "how heavily retirees weigh on the active generation in {c}",
        ),
        dev=(
            "the relation of the aged to adults in employment years in {c}",
            "the strain of grandparents upon breadwinners in {c}",
        ),
        test=(
            "the quotient of over-64s and 15-to-64s in {c}",
            "to what degree the grey-haired lean on the labour force of {c}",
        ),
        contrasts=(
            Contrast(
                "how many young people there are in {c} for every hundred of working age",
                "Dependency ratios - youth dependency ratio",
                "young for old",
            ),
        ),
    ),
    Field(
        "Population - total",
        PEOPLE,
        "total population",
        unit="people",
        warmup=("how many people live in {c}", "the number of people who call {c} their home"),
        explore=("the headcount of {c}", "how many residents {c} has altogether"),
        dev=("how numerous the inhabitants of {c} are", "the human tally of {c}"),
        test=("the size of the whole citizenry of {c}", "how many souls a census of {c} would find"),
        contrasts=(
            Contrast("how many women live in {c}", "Population - female", "women"),
            Contrast("how many men live in {c}", "Population - male", "men"),
        ),
    ),
)

_LAND_FIELDS = (
    Field(
        "Area - water",
        GEOGRAPHY,
        "water area",
        warmup=(
            "how large the lakes and rivers of {c} are taken together",
            "the part of {c} that is covered by lakes and rivers",
        ),
        explore=(
            "the extent of the wet portion inside {c}",
            "how many square kilometers of {c} one would need a boat for",
        ),
        dev=(
            "the size of all reservoirs, ponds and streams in {c}",
            "how much of {c}'s surface fish could swim in",
        ),
        test=(
            "the expanse of inland bodies that are not ground in {c}",
            "the acreage of {c} where nobody walks with dry feet",
        ),
        contrasts=(
            Contrast("how large the dry land of {c} is taken together", "Area - land", "dry land for lakes and rivers"),
        ),
    ),
    Field(
        "Coastline",
        GEOGRAPHY,
        "length of the coastline",
        warmup=("how long the seashore of {c} is", "the length of the edge where {c} meets the sea"),
        explore=(
            "the distance one would walk along all beaches of {c}",
            "how many kilometers of ocean front {c} has",
        ),
        dev=("the extent of the littoral of {c}", "how far the tide touches {c}, from end to end"),
        test=("the stretch of saltwater rim around {c}", "the span of maritime fringe belonging to {c}"),
    ),
    Field(
        "Land boundaries - total",
        GEOGRAPHY,
        "total length of the land boundaries",
        warmup=(
            "how long the border of {c} with all its neighbours is",
            "the length of fence that would close {c} off from its neighbours",
        ),
        explore=(
            "the kilometers of frontier that {c} shares with others",
            "how far a patrol around the dry edge of {c} would have to drive",
        ),
        dev=(
            "the sum of the lines dividing {c} from adjacent states",
            "the extent of {c}'s perimeter, shores left out",
        ),
        test=(
            "the overall span of demarcation between {c} and whoever lies next to it",
            "the distance covered by all terrestrial limits of {c}",
        ),
    ),
    Field(
        "Elevation - mean elevation",
        GEOGRAPHY,
        "mean elevation",
        warmup=(
            "how high above the sea {c} lies on average",
            "the height of {c} above the sea if all hills were levelled out",
        ),
        explore=("the typical altitude of the ground in {c}", "how far up the terrain of {c} is in general"),
        dev=(
            "by how many meters {c} stands over the ocean, in the main",
            "how lofty the landscape of {c} is, all told",
        ),
        test=(
            "the vertical position of the usual spot in {c}",
            "what an altimeter would show at a random place of {c}, in the long run",
        ),
    ),
    Field(
        "Land use - forest",
        GEOGRAPHY,
        "forest share of land use",
        warmup=("what part of {c} is covered by trees", "the share of {c} where trees grow close together"),
        explore=("how wooded {c} is", "the proportion of {c} under woodland"),
        dev=("how much of {c} a lumberjack could work in", "the percentage of {c} hidden beneath a leafy canopy"),
        test=("the sylvan fraction of {c}", "to what extent {c} consists of jungle, taiga, groves and the like"),
    ),
    Field(
        "Land use - agricultural land, arable land",
        GEOGRAPHY,
        "arable land share of land use",
        warmup=("what part of {c} can be ploughed for crops", "the share of {c} where farmers sow and harvest crops"),
        explore=("how much of {c} is tilled fields", "the proportion of {c} given to growing grain and vegetables"),
        dev=(
            "the percentage of {c} with soil under cultivation each year",
            "to what extent {c} consists of cropland",
        ),
        test=("the fraction of {c} fit for tractors and seed drills", "how large the planted acreage looms in {c}"),
        contrasts=(
            Contrast(
                "what part of {c} can be used as meadows for cattle",
                "Land use - agricultural land, permanent pasture",
                "meadows for crops",
            ),
        ),
    ),
    Field(
        "Particulate matter emissions",
        ENVIRONMENT,
        "particulate matter emissions",
        warmup=("how much fine dust the air of {c} holds", "how dirty with dust the air is that people breathe in {c}"),
        explore=("the soot concentration over {c}", "the amount of tiny floating specks in the atmosphere of {c}"),
        dev=("how badly smog clouds {c}", "the micrograms of haze in a cubic meter above {c}"),
        test=("the burden of PM2.5 for lungs in {c}", "the degree of airborne pollution from minute grains in {c}"),
    ),
    Field(
        "Waste and recycling - municipal solid waste generated annually",
        ENVIRONMENT,
        "municipal solid waste generated annually",
        warmup=(
            "how much rubbish the towns of {c} throw away in a year",
            "the rubbish that piles up in {c} every year",
        ),
        explore=(
            "the tons of garbage out of households in {c}",
            "how much trash dustmen in {c} collect over twelve months",
        ),
        dev=("the yearly amount of refuse from homes and shops in {c}", "what quantity ends up in the bins of {c}"),
        test=("the mass of litter and leftovers that {c} discards", "the load on landfills from the cities of {c}"),
    ),
    Field(
        "Total renewable water resources",
        ENVIRONMENT,
        "total renewable water resources",
        warmup=(
            "how much fresh water rain and rivers bring to {c} again and again",
            "the fresh water that {c} can count on anew every year",
        ),
        explore=(
            "the amount nature refills in the springs and streams of {c}",
            "how many cubic meters to drink and irrigate with come back to {c} through the natural cycle",
        ),
        dev=("the replenished hydrological wealth of {c}", "what {c} gets in liquid supplies that never run out"),
        test=("the sustainable aquatic stock of {c}", "the volume of H2O on which {c} may draw without end"),
    ),
)

_MONEY_FIELDS = (
    Field(
        "Real GDP per capita 2023",
        ECONOMY,
        "real GDP per capita in 2023",
        warmup=(
            "how much one person in {c} produced in 2023, in dollars",
            "what the economy of {c} came to in 2023 when shared out among everybody",
        ),
        explore=(
            "the output for each head in {c} in 2023",
            "the average resident's slice of national income in {c} for 2023",
        ),
        dev=(
            "how rich {c} was per inhabitant in 2023",
            "the wealth created by an individual citizen of {c} during 2023",
        ),
        test=(
            "the value added by a single member of the populace of {c} over 2023",
            "the 2023 prosperity level of {c}, divided by its headcount",
        ),
        contrasts=(
            Contrast(
                "how much one person in {c} produced in 2022, in dollars", "Real GDP per capita 2022", "2022 for 2023"
            ),
        ),
    ),
    Field(
        "Real GDP growth rate 2023",
        ECONOMY,
        "real GDP growth rate in 2023",
        warmup=(
            "how fast the economy of {c} grew in 2023",
            "by how much the economy of {c} became bigger in 2023",
        ),
        explore=(
            "the expansion of total output in {c} in 2023",
            "the speed at which business as a whole picked up in {c} in 2023",
        ),
        dev=(
            "the percentage by which {c} raised its production during 2023",
            "how strongly national income climbed or slid in {c} across 2023",
        ),
        test=(
            "the upturn or slump in overall activity that {c} went through over 2023",
            "the 2023 rate of advance in everything {c} makes and sells",
        ),
        contrasts=(Contrast("how fast the economy of {c} grew in 2022", "Real GDP growth rate 2022", "2022 for 2023"),),
    ),
    Field(
        "Inflation rate (consumer prices) 2023",
        ECONOMY,
        "inflation rate (consumer prices) in 2023",
        warmup=("how fast prices in the shops of {c} rose in 2023", "by how much prices went up in {c} in 2023"),
        explore=("the loss in what money buys in {c} in 2023", "how much dearer shopping became in {c} in 2023"),
        dev=(
            "the rise in the cost of living in {c} during 2023",
            "how quickly the currency lost value in {c} across 2023",
        ),
        test=("the 2023 surge in till receipts of {c}", "the percentage more that households of {c} paid over 2023"),
        contrasts=(
            Contrast(
                "how fast prices in the shops of {c} rose in 2022",
                "Inflation rate (consumer prices) 2022",
                "2022 for 2023",
            ),
        ),
    ),
    Field(
        "Youth unemployment rate (ages 15-24) - male",
        ECONOMY,
        "youth unemployment rate of males",
        warmup=(
            "the share of young men in {c} who look for work in vain",
            "what part of the young men of {c} is without work",
        ),
        explore=(
            "how many boys fresh from school in {c} find no job",
            "the proportion of jobless guys below twenty-five in {c}",
        ),
        dev=(
            "the percentage of lads between 15 and 24 in {c} out of employment",
            "how common idleness against their will is for teenage and slightly older fellows in {c}",
        ),
        test=(
            "the fraction of junior masculine applicants left empty-handed in {c}",
            "the extent to which sons starting a career in {c} stay on the dole",
        ),
        contrasts=(
            Contrast(
                "the share of young women in {c} who look for work in vain",
                "Youth unemployment rate (ages 15-24) - female",
                "women for men",
            ),
        ),
    ),
    Field(
        "Exports 2023",
        ECONOMY,
        "exports in 2023",
        warmup=(
            "what {c} sold to the rest of the world in 2023",
            "the worth of everything that {c} sold abroad in 2023",
        ),
        explore=(
            "how much foreign customers paid for goods from {c} in 2023",
            "the value of outbound trade of {c} in 2023",
        ),
        dev=(
            "the dollars {c} took in for shipments across its frontier during 2023",
            "{c}'s overseas sales during 2023",
        ),
        test=(
            "the 2023 earnings of {c} from buyers in other states",
            "the merchandise and services leaving {c} over 2023",
        ),
        contrasts=(
            Contrast("what {c} sold to the rest of the world in 2022", "Exports 2022", "2022 for 2023"),
            Contrast("what {c} bought from the rest of the world in 2023", "Imports 2023", "bought for sold"),
        ),
    ),
    Field(
        "Budget - revenues",
        ECONOMY,
        "budget revenues",
        warmup=("how much money the state takes in in {c}", "the money that flows into the treasury of {c}"),
        explore=("what the government of {c} collects through taxes and the like", "public income in {c}"),
        dev=("the receipts of the finance ministry of {c}", "the yearly intake of the fiscal authorities in {c}"),
        test=("the sum raised by officialdom in {c} for its coffers", "the proceeds at the disposal of rulers in {c}"),
        contrasts=(Contrast("how much money the state spends in {c}", "Budget - expenditures", "spends for takes in"),),
    ),
    Field(
        "GDP - composition, by sector of origin - agriculture",
        ECONOMY,
        "agriculture share in the composition of GDP by sector of origin",
        warmup=(
            "what part of the economy of {c} comes from farming",
            "the share that farming brings to everything {c} earns",
        ),
        explore=(
            "how much of the output of {c} peasants and fishermen account for",
            "the proportion of national income grown on fields and raised in barns in {c}",
        ),
        dev=(
            "the weight of crops and livestock in the gross product of {c}",
            "how dependent on harvests the business life of {c} is",
        ),
        test=(
            "the fraction of wealth creation in {c} owed to tillers of the soil",
            "the contribution of the primary sector to what {c} makes",
        ),
        contrasts=(
            Contrast(
                "what part of the economy of {c} comes from factories",
                "GDP - composition, by sector of origin - industry",
                "factories for farming",
            ),
            Contrast(
                "what part of the economy of {c} comes from services",
                "GDP - composition, by sector of origin - services",
                "services for farming",
            ),
        ),
    ),
)

_NETWORK_FIELDS = (
    Field(
        "Electricity - installed generating capacity",
        ENERGY,
        "installed generating capacity of electricity",
        warmup=(
            "how much current the power stations of {c} could deliver at once",
            "the strength of all power stations of {c} together",
        ),
        explore=(
            "the kilowatts that plants in {c} are able to put out",
            "how big the fleet of turbines and panels in {c} is",
        ),
        dev=(
            "the peak wattage available to the grid from sources inside {c}",
            "the combined nameplate rating of dynamos in {c}",
        ),
        test=(
            "the maximal load that generators of {c} were built for",
            "what utilities in {c} might feed in if everything ran flat out",
        ),
        contrasts=(
            Contrast(
                "how much current the homes and firms of {c} use up in a year",
                "Electricity - consumption",
                "use for delivery",
            ),
        ),
    ),
    Field(
        "Electricity generation sources - fossil fuels",
        ENERGY,
        "share of fossil fuels among the electricity generation sources",
        warmup=(
            "the share of current that {c} makes from coal, oil and gas",
            "what part of the power in {c} comes from burning coal, oil and gas",
        ),
        explore=(
            "how dependent the plugs of {c} are on carbon from underground",
            "the proportion of dirty, non-renewable supply in the grid of {c}",
        ),
        dev=(
            "the percentage of kilowatt-hours in {c} with a smoking chimney behind them",
            "the weight of combustible minerals in the energy mix for lamps and motors of {c}",
        ),
        test=(
            "the fraction of wattage that {c} obtains out of hydrocarbons and lignite",
            "to what extent thermal stations keep the lights on in {c}",
        ),
        contrasts=(
            Contrast(
                "the share of current that {c} makes from sunlight",
                "Electricity generation sources - solar",
                "sunlight for coal, oil and gas",
            ),
        ),
    ),
    Field(
        "Petroleum - refined petroleum consumption",
        ENERGY,
        "refined petroleum consumption",
        warmup=(
            "how much petrol, diesel and heating oil {c} uses in a day",
            "the barrels of petrol and diesel that {c} burns every day",
        ),
        explore=(
            "the daily thirst of {c} for gasoline and other motor fuels",
            "what goes through the filling pumps and boilers of {c} in twenty-four hours",
        ),
        dev=(
            "the demand for products of the refinery in {c}",
            "how much kerosene, naphtha and their kin {c} gets through",
        ),
        test=(
            "the appetite of engines and furnaces in {c} for processed crude",
            "the bbl of distillates needed between one sunrise and the next in {c}",
        ),
    ),
    Field(
        "Internet users - percent of population",
        COMMUNICATIONS,
        "percent of population who are internet users",
        warmup=("what part of the people of {c} goes online", "the share of people in {c} who are online"),
        explore=("how many residents of {c} out of a hundred surf the web", "the proportion of {c} that is on the net"),
        dev=(
            "how widespread e-mail and browsing are among inhabitants of {c}",
            "the digitally connected percentage of {c}",
        ),
        test=("the fraction of citizens logging in from {c}", "the reach of cyberspace into the homes of {c}"),
    ),
    Field(
        "Telephones - mobile cellular - total subscriptions",
        COMMUNICATIONS,
        "total subscriptions of mobile cellular telephones",
        unit="subscriptions",
        warmup=(
            "how many contracts for pocket phones there are in {c}",
            "the number of phones that people carry around in {c}",
        ),
        explore=("how many SIM cards are active in {c}", "the count of handsets in use across {c}"),
        dev=("the size of the wireless customer base in {c}", "how many smartphone plans operators of {c} serve"),
        test=("the quantity of portable devices with a number of their own in {c}", "the cellphone tally of {c}"),
        contrasts=(
            Contrast(
                "how many contracts for landline phones there are in {c}",
                "Telephones - fixed lines - total subscriptions",
                "landline for pocket",
            ),
        ),
    ),
    Field(
        "Airports",
        "Transportation",
        "number of airports",
        unit="airports",
        warmup=("how many places in {c} planes can land at", "the number of places to land a plane in {c}"),
        explore=("the count of airfields in {c}", "how many sites with a runway pilots find across {c}"),
        dev=("how many aerodromes {c} has", "the quantity of fields for take-off and touchdown in {c}"),
        test=(
            "how many flight terminals and strips dot {c}",
            "the aviation hubs of {c}, big or small",
        ),
    ),
    Field(
        "Military Expenditures 2023",
        "Military and Security",
        "military expenditures in 2023",
        warmup=(
            "what part of the economy of {c} went to the army in 2023",
            "the share of everything {c} earned that its army cost in 2023",
        ),
        explore=(
            "how much of its output {c} devoted to soldiers and weapons in 2023",
            "the slice of national income behind defence in {c} in 2023",
        ),
        dev=(
            "the percentage of the gross product that troops swallowed in {c} during 2023",
            "the weight of tanks, jets and barracks in what {c} produced during 2023",
        ),
        test=(
            "the fraction of wealth creation that {c} put into armed forces over 2023",
            "the 2023 outlay of {c} for warfare, measured against all it made",
        ),
        contrasts=(
            Contrast(
                "what part of the economy of {c} went to the army in 2022",
                "Military Expenditures 2022",
                "2022 for 2023",
            ),
        ),
    ),
    Field(
        "Refugees and internally displaced persons - refugees",
        "Transnational Issues",
        "number of refugees",
        unit="refugees",
        warmup=(
            "how many people have fled from elsewhere to {c}",
            "the number of people who found shelter in {c} from trouble at home",
        ),
        explore=("how many foreigners seek asylum in {c}", "the count of exiles whom {c} hosts"),
        dev=(
            "the quantity of escapees from war and persecution abroad in {c}",
            "how many uprooted outsiders {c} protects",
        ),
        test=(
            "the size of the displaced community that crossed into {c}",
            "how many fugitives from other states {c} harbours",
        ),
    ),
)

_NAME_FIELDS = (
    Field(
        "Capital - name",
        GOVERNMENT,
        "name of the capital",
        kind="text",
        warmup=("the city from which {c} is governed", "the city where the government of {c} sits"),
        explore=("the town in which parliament and ministries of {c} meet", "the seat of power in {c}"),
        dev=(
            "the place that houses the top authorities of {c}",
            "the premier municipality of {c} in the eyes of the law",
        ),
        test=("the metropolis at the head of the state of {c}", "where embassies to {c} are found"),
    ),
    Field(
        "Internet country code",
        COMMUNICATIONS,
        "internet country code",
        kind="text",
        warmup=("how web addresses from {c} end", "the letters at the end of web addresses from {c}"),
        explore=("the top-level domain of {c}", "the suffix which sites based in {c} carry"),
        dev=("what follows the last dot of a homepage in {c}", "the ending that an e-mail account of {c} shows"),
        test=("the two characters by which URLs give away {c}", "the online abbreviation assigned to {c}"),
    ),
    Field(
        "Exchange rates - Currency",
        ECONOMY,
        "currency in the exchange rates",
        kind="text",
        warmup=("the money people pay with in {c}", "the money that comes out of a cash machine in {c}"),
        explore=("the legal tender of {c}", "what banknotes in {c} are denominated in"),
        dev=("the coins and bills one needs for shopping in {c}", "what a traveller to {c} should change dollars into"),
        test=("the monetary unit of {c}", "what wages in {c} are handed out in"),
    ),
    Field(
        "National anthem(s) - title",
        GOVERNMENT,
        "title of the national anthem",
        kind="text",
        warmup=(
            "the song that is played for winners from {c}",
            "the song for which people of {c} stand up",
        ),
        explore=("the patriotic hymn of {c}", "what a band strikes up on state visits to {c}"),
        dev=("the tune raised with the flag of {c}", "what fans of {c} sing ahead of an international match"),
        test=("the official melody of {c}", "the musical emblem of {c}, by its heading"),
    ),
    Field(
        "Executive branch - head of government",
        GOVERNMENT,
        "head of government",
        kind="text",
        warmup=("the person who leads the ministers of {c}", "the person in charge of the cabinet of {c}"),
        explore=("who runs day-to-day politics in {c}", "the chancellor of {c}, or whoever fills that role"),
        dev=("the chief of the administration in {c}", "who presides over the council that executes laws in {c}"),
        test=(
            "the holder of the highest political office below the throne or presidency in {c}",
            "the top executive of {c}",
        ),
    ),
    Field(
        "Legislative branch - legislature name",
        GOVERNMENT,
        "name of the legislature",
        kind="text",
        warmup=("what the parliament of {c} calls itself", "the title that the parliament of {c} goes by"),
        explore=("the assembly of lawmakers in {c}", "the body whose members vote on bills in {c}"),
        dev=("what the chambers of elected deputies in {c} are known as", "the house where statutes of {c} are passed"),
        test=("the designation of the representatives' forum in {c}", "the institution that enacts rules for {c}"),
    ),
)

FIELDS = (*_PEOPLE_FIELDS, *_LAND_FIELDS, *_MONEY_FIELDS, *_NETWORK_FIELDS, *_NAME_FIELDS)
NUMBERS = tuple(field for field in FIELDS if field.kind == "number")
BY_LABEL = {field.label: field for field in FIELDS}
