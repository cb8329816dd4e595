"""Operations worth swapping, each with one signature and several implementations."""
