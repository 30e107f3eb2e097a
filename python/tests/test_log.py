"""Lines of the log: their levels."""

import logging

import ringreel


def test_the_first_word_of_a_wait_is_information_and_later_ones_are_warnings(caplog):
    caplog.set_level(logging.INFO, "ringreel")
    tell = ringreel._log.Waiting()
    tell("rain")
    tell("rain")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
