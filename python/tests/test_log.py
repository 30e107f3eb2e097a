"""Levels of log lines."""

import logging

import ringreel


def test_first_line_of_a_wait_is_info_and_later_ones_are_warnings(caplog):
    caplog.set_level(logging.INFO, "ringreel")
    tell = ringreel._log.Waiting()
    tell("rain")
    tell("rain")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
