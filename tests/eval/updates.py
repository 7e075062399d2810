"""Facts that change: a made set of statements, their later replacements, and questions about how things are now.

Every pair is put together from a subject, two of its values and one of many phrasings of each part, chosen by a seeded
generator, so the set is the same on every machine. Between the two statements lie weeks and other talk.
"""

import datetime
import json
import os
import random

# What can change: values, first statements, replacements, questions. {o} is the old value, {n} the new one.
SUBJECTS = {
    "home": (
        ["Lisbon", "Turin", "Ghent", "Malmö", "Porto", "Leeds", "Graz", "Basel", "Utrecht", "Kraków"],
        ["I live in {o}.", "My flat is in {o}, close to the station.", "Home is {o} for me.", "I've been living in {o} since spring."],
        ["I moved to {n} last week.", "We finally made it: I live in {n} now.", "My new flat is in {n}.", "I left {o} for good, home is {n} now."],
        ["Where do I live?", "Which city is my home in?", "In which city do I live now?", "What city do I live in these days?"],
    ),
    "job": (
        ["Northwind", "Acme Labs", "the city library", "Bluebird Travel", "Kessel & Sons", "Orbital", "the water works", "Finch Media"],
        ["I work at {o}.", "My employer is {o}.", "I'm with {o} as a planner.", "I earn my living at {o}."],
        ["I started working at {n} on Monday.", "I quit {o}; my employer is {n} now.", "I work for {n} since the first of the month.", "My new job is at {n}."],
        ["Where do I work?", "Who is my employer?", "Which company do I work for?", "Who do I work for currently?"],
    ),
    "dentist": (
        ["Dr. Abbott", "Dr. Silva", "Dr. Nowak", "Dr. Haas", "Dr. Imani", "Dr. Rossi", "Dr. Lund"],
        ["My dentist is {o}.", "I go to {o} for my teeth.", "{o} is the dentist I trust."],
        ["I changed dentists, it's {n} now.", "My new dentist is {n}.", "{o} retired, so {n} is my dentist now."],
        ["Who is my dentist?", "What is the name of my dentist?", "Which dentist do I go to?"],
    ),
    "car": (
        ["a grey Skoda", "a red Fiat", "an old Volvo", "a white Kia", "a blue Renault", "a green Mazda"],
        ["I drive {o}.", "My car is {o}.", "We own {o}."],
        ["I sold the car and bought {n}.", "My car is {n} now.", "I drive {n} since yesterday."],
        ["What car do I drive?", "Which car do I have?", "What kind of car do I own?"],
    ),
    "editor": (
        ["Vim", "Emacs", "Helix", "Zed", "Kakoune", "Sublime", "Nano"],
        ["I write all my code in {o}.", "My editor is {o}.", "I use {o} as my editor."],
        ["I switched my editor to {n}.", "I use {n} as my editor now.", "After years I gave up {o}: my editor is {n}."],
        ["Which editor do I use?", "What is my editor?", "What editor do I write code in?"],
    ),
    "database": (
        ["PostgreSQL", "MySQL", "SQLite", "MongoDB", "Cassandra", "DuckDB", "MariaDB"],
        ["The project stores everything in {o}.", "Our database is {o}.", "We keep the data in {o}."],
        ["We migrated the database to {n}.", "Our database is {n} now, {o} is gone.", "The data is kept in {n} from today on."],
        ["Which database does the project use?", "What is our database?", "What database do we keep the data in?"],
    ),
    "standup": (
        ["9:00", "9:30", "10:15", "11:00", "8:45", "13:30", "16:00"],
        ["The standup is at {o}.", "We meet for the standup at {o} every day.", "Standup time is {o}."],
        ["The standup was moved to {n}.", "From now on the standup is at {n}.", "Standup time is {n} now."],
        ["When is the standup?", "What time is our standup?", "At what time does the standup start?"],
    ),
    "gym": (
        ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
        ["My gym day is {o}.", "I go to the gym on {o}.", "{o} is when I train at the gym."],
        ["I moved my gym day to {n}.", "I go to the gym on {n} now.", "Gym is on {n} from this week on."],
        ["On which day do I go to the gym?", "What is my gym day?", "Which day is my gym day?"],
    ),
    "rent": (
        ["780 euros", "820 euros", "905 euros", "1,010 euros", "1,150 euros", "690 euros"],
        ["I pay {o} of rent.", "The rent for my flat is {o}.", "My rent is {o} a month."],
        ["My rent went up to {n}.", "The rent is {n} from this month on.", "They changed the rent, I pay {n} now."],
        ["How much rent do I pay?", "What is my rent?", "How high is my rent now?"],
    ),
    "coffee": (
        ["flat white", "espresso", "cappuccino", "filter coffee", "cortado", "iced latte"],
        ["My favourite coffee is a {o}.", "I always order a {o}.", "For me a {o} is the best coffee."],
        ["My favourite coffee is a {n} now.", "I went off {o}, a {n} is my favourite coffee these days.", "Lately my favourite coffee is a {n}."],
        ["What is my favourite coffee?", "Which coffee do I like best?", "What's my favourite coffee?"],
    ),
    "deadline": (
        ["March 3", "March 17", "April 2", "April 20", "May 5", "May 28", "June 11"],
        ["The deadline for the grant is {o}.", "The grant application is due on {o}.", "We must hand in the grant by {o}."],
        ["The deadline for the grant was moved to {n}.", "The grant is due on {n} instead of {o}.", "New deadline for the grant: {n}."],
        ["What is the deadline for the grant?", "When is the grant due?", "By when must we hand in the grant?"],
    ),
    "phone": (
        ["Telora", "Vodacell", "Simpel", "Bluefone", "Orca Mobile", "Lyca Net"],
        ["My phone contract is with {o}.", "I have my mobile plan with {o}.", "{o} is my phone provider."],
        ["I took my number over to {n}, my phone contract is there now.", "My phone provider is {n} now.", "I changed my mobile plan to {n}."],
        ["Who is my phone provider?", "With whom do I have my phone contract?", "Which company is my mobile plan with?"],
    ),
    "doctor": (
        ["ibuprofen", "cetirizine", "metformin", "lisinopril", "omeprazole", "loratadine"],
        ["I take {o} every morning.", "My medication is {o}.", "The doctor has me on {o}."],
        ["The doctor changed my medication to {n}.", "I take {n} instead of {o} now.", "My medication is {n} since the last visit."],
        ["Which medication do I take?", "What is my medication?", "What medication am I on?"],
    ),
    "language": (
        ["Portuguese", "Korean", "Finnish", "Greek", "Swahili", "Welsh", "Polish"],
        ["I'm learning {o}.", "The language I study is {o}.", "Every evening I study {o}."],
        ["I dropped {o} and I'm learning {n} now.", "The language I study is {n} now.", "I started learning {n} instead."],
        ["Which language am I learning?", "What language do I study?", "What language am I studying now?"],
    ),
    "budget": (
        ["12,000 dollars", "15,500 dollars", "18,000 dollars", "21,000 dollars", "9,800 dollars"],
        ["The budget for the kitchen is {o}.", "We can spend {o} on the kitchen.", "Kitchen budget: {o}."],
        ["We raised the kitchen budget to {n}.", "The budget for the kitchen is {n} now.", "New kitchen budget after talking to the bank: {n}."],
        ["What is the budget for the kitchen?", "How much can we spend on the kitchen?", "What's our kitchen budget?"],
    ),
    "dog": (
        ["chicken kibble", "salmon kibble", "rice and lamb", "raw food", "grain-free pellets"],
        ["Our dog Pip eats {o}.", "Pip gets {o} for dinner.", "I feed Pip {o}."],
        ["We switched Pip to {n}.", "Pip eats {n} now.", "The vet put Pip on {n}."],
        ["What does Pip eat?", "What food does our dog Pip get?", "What do I feed Pip?"],
    ),
    "lead": (
        ["Amara", "Bjorn", "Chiara", "Deepak", "Elif", "Farid", "Greta"],
        ["{o} leads the mobile team.", "The lead of the mobile team is {o}.", "Our mobile team reports to {o}."],
        ["{n} took over as lead of the mobile team.", "The mobile team is led by {n} now.", "{o} left, {n} leads the mobile team."],
        ["Who leads the mobile team?", "Who is the lead of the mobile team?", "Whom does the mobile team report to?"],
    ),
    "wifi": (
        ["harbour-41", "lemon-tree-7", "quiet-otter", "paper-moon-3", "blue-kettle", "copper-fox"],
        ["The guest network is called {o}.", "Guests use the network {o}.", "Name of the guest network: {o}."],
        ["I renamed the guest network to {n}.", "The guest network is called {n} now.", "New name of the guest network: {n}."],
        ["What is the guest network called?", "What's the name of the guest network?", "Which network do guests use?"],
    ),
}
TALK = [
    "The weather was awful today, rain all afternoon.", "Can you help me with a recipe for lentil soup?", "I watched a long film about whales.",
    "My sister called, she is doing well.", "Please draft a short note to the neighbours about the noise.", "I need an idea for a birthday present.",
    "The train was late again.", "How do I get a wine stain out of a shirt?", "We had pasta for dinner.", "I read two chapters of that novel.",
    "What is the capital of Mongolia?", "Remind me to water the plants.", "The meeting about the roof went on for hours.", "I planted tomatoes on the balcony.",
    "Could you explain how tides work?", "I slept badly.", "We saw a heron by the river.", "The printer is out of paper.", "My bike has a flat tyre.",
    "Let's plan the weekend.",
]
REPLIES = ["Noted.", "Got it, thanks for telling me.", "That sounds good.", "Understood.", "Here is what I would do: start small and see how it goes.", "Sure."]


def haystack(seed):
    """Messages and questions of one person: every subject once, old and new value."""
    chance = random.Random(seed)
    start = datetime.datetime(2025, 1, 6, 9, tzinfo=datetime.timezone.utc)
    days, questions = {}, []

    def say(day, text):
        days.setdefault(day, []).append(text)

    for subject, (values, first, later, asked) in SUBJECTS.items():
        old, new = chance.sample(values, 2)
        before = chance.randrange(0, 120)
        after = before + chance.randrange(3, 150)
        # Now and then the new value is simply told, as if there had never been another.
        again = [text.replace("{o}", "{n}") for text in first]
        texts = [chance.choice(part).format(o=old, n=new) for part in (first, later + again[:1])]
        say(before, texts[0])
        say(after, texts[1])
        questions.append((subject, chance.choice(asked), texts))
    for _ in range(200):
        say(chance.randrange(0, 280), chance.choice(TALK))
    messages, ids = [], {}
    for day in sorted(days):
        for at, text in enumerate(days[day]):
            ts = start + datetime.timedelta(days=day, minutes=7 * at)
            for role, said in (("user", text), ("assistant", chance.choice(REPLIES))):
                one = {"conversation": "main", "session": f"D{day}", "id": f"D{day}:{len(messages)}", "role": role, "text": said}
                one["ts"] = (ts + datetime.timedelta(minutes=role == "assistant")).isoformat()
                messages.append(one)
                ids.setdefault(said, one)
    now = (start + datetime.timedelta(days=300)).isoformat()
    lines = []
    for subject, question, (old, new) in questions:
        line = {"id": f"{seed}:{subject}", "query": question, "category": "update", "now": now}
        line |= {"gold": [ids[new]["id"]], "gold_sessions": [ids[new]["session"]], "newer": [ids[new]["id"]], "older": [ids[old]["id"]]}
        lines.append(line)
    return messages, lines


def write(folder, many=30):
    for seed in range(many):
        place = os.path.join(folder, f"person-{seed:02}")
        os.makedirs(place, exist_ok=True)
        for name, lines in zip(("messages.jsonl", "questions.jsonl"), haystack(seed)):
            with open(os.path.join(place, name), "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    import sys

    write(sys.argv[1])
