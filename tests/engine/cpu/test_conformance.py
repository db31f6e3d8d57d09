from tests.engine.conformance import EngineCoreConformance, Subject, state_machine
from tests.engine.cpu.fakes import engine, real_engine

FAKE = Subject(
    make_core=engine,
    voice="fake",
    texts=("Hello there, friend.", "How are you today?", "Fine."),
)
REAL = Subject(
    make_core=real_engine,
    voice="heart",
    texts=("Hello, you.", "It is $3.50 now."),
    machine_examples=4,
    machine_steps=25,
)


class TestFakeVoice(EngineCoreConformance):
    """The core keeps every rule of the waist, whatever its voice."""

    subject = FAKE


class TestEmbeddedVoice(EngineCoreConformance):
    """So does the core with the embedded voice."""

    subject = REAL


TestAnyOrderWithFakeVoice = state_machine(FAKE)
TestAnyOrderWithEmbeddedVoice = state_machine(REAL)
