"""The word counter that decides the end-to-end tests counts right."""

from speech import words, wrong_words


def test_words_are_compared_without_punctuation_case_and_hyphens() -> None:
    assert words("And Mr. John, cold-hearted.") == ["and", "mister", "john", "cold", "hearted"]
    assert wrong_words("and mister john dashwood", "And Mr. John Dashwood.") == 0


def test_every_kind_of_wrong_word_counts_once() -> None:
    said = "he was not an ill disposed young man"
    assert wrong_words(said, "He was not an ill-disposed young man.") == 0
    assert wrong_words(said, "He was not an old-disposed young man.") == 1
    assert wrong_words(said, "He was not ill disposed young man") == 1
    assert wrong_words(said, "He was not an ill disposed very young man") == 1
    assert wrong_words(said, "") == 8
    assert wrong_words("", "you") == 1
